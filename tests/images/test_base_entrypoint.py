"""A base that starts every program through a script of its vendor's: ours print what the program prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import tk
from tests.support.engine import TestEngine
from toolchain.engine.build import build_image
from toolchain.images.plan import BaseImage, ContextFile, Copy, Entrypoint, From, Plan, Stage

pytestmark = pytest.mark.slow

BANNER = '#!/bin/sh\necho == CUDA ==\nexec "$@"\n'


def vendors_base(base: str) -> Plan:
    """An image as NVIDIA's are: its entrypoint prints a banner and starts what is asked for."""
    steps = (From(base, "base"), Copy(("banner.sh",), "/opt/banner.sh"), Entrypoint(("/opt/banner.sh",)))
    files = (ContextFile("banner.sh", BANNER.encode(), 0o755),)
    return Plan("banner", "tk-test/banner", "1", BaseImage(base), (Stage("base", steps),), files)


def test_no_banner_stands_in_the_output(docker_engine: TestEngine, tmp_path: Path) -> None:
    base = build_image(docker_engine.open(), vendors_base(docker_engine.base)).reference
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    words = ("cpu", "--base", base, "--docker-host", docker_engine.url)
    built = tk("image", "build", *words, cwd=tmp_path, env=env, timeout=1200)
    assert built.code == 0, built.err[-3000:]
    for builder in ("", "--builder=classic"):
        if builder:
            built = tk("image", "build", *words, builder, "--no-cache", cwd=tmp_path, env=env, timeout=1200)
            assert built.code == 0, built.err[-3000:]
        reference = built.out.strip()
        ran = tk("image", "run", reference, *words[3:], "--", "echo", "hello", cwd=tmp_path, env=env)
        assert (ran.code, ran.out) == (0, "hello\n"), ran.err
