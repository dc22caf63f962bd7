"""Models compiled for CUDA and HIP, run by the emulator: nothing of a vendor's takes part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.core.settings import Settings
from compiler.pipeline import run_job
from compiler.stages import job
from compiler.stages.job import CompileJob
from compiler.targets.device import SOURCE, Image, Images, Module
from compiler.targets.target import Target
from compiler.verify.check import poisoned

TARGETS = ("cuda-nvidia", "rocm-amd")
Arrays = dict[str, np.ndarray]


def text_only(patch: pytest.MonkeyPatch, changed: Callable[[str], str] | None = None) -> None:
    """Let libraries for GPUs carry the text of their kernels alone: the emulator needs no more.

    `changed` makes another text of it.
    """
    whole = job.get_target

    def build(module: Module, _target: Target, _settings: Settings) -> Images:
        text = module.text if changed is None else changed(module.text)
        return Images((Image(SOURCE, "", text.encode()),), "none")

    def get_target(text: str, arch: str | None = None, *, precision: str = "f32") -> Target:
        target = whole(text, arch, precision=precision)
        assert target.device is not None
        return dataclasses.replace(target, device=dataclasses.replace(target.device, build=build))

    patch.setattr(job, "get_target", get_target)


def emulate(proto: onnx.ModelProto, feeds: Arrays, target: str, directory: Path) -> Arrays:
    """What a model computes when it is compiled for `target`; raises the defect that the emulator finds."""
    library = directory / f"{target}.so"
    onnx.save(proto, directory / "m.onnx")
    options = compiler.CompileOptions(output=library, target=target)
    run_job(CompileJob.of(directory / "m.onnx", options))  # past the cache of libraries
    with compiler.load(library, device="emulator") as model:
        return model.run(feeds, out=poisoned(model.outputs))
