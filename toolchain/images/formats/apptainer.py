"""A plan as an Apptainer definition: starts from the built image by its digest in a registry."""

from __future__ import annotations

import re
import shlex

from compiler import HostError
from toolchain.images.plan import Plan

FILE = "apptainer.def"
_PINNED = re.compile(r"[a-z0-9][A-Za-z0-9./:_-]*@sha256:[0-9a-f]{64}")
_FLAGS = {"nvidia": "--nv", "amd": "--rocm", "hygon": "--rocm --bind /opt/hyhal", "intel": "--bind /dev/dri"}


def apptainer(plan: Plan, pinned: str) -> str:
    """The definition file; `pinned` is `registry/name@sha256:...` of the built image, or empty.

    Raises HostError when no digest is known: without one the file would not say which image it means.
    """
    if not _PINNED.fullmatch(pinned):
        raise HostError(
            f"no digest of {plan.name} is known",
            why="an Apptainer definition starts from an image in a registry, named by its digest, and this"
            f" engine has none of {plan.reference} that was pushed or pulled",
            hint=f"`tk image build {plan.name}`, then `tk image push {plan.name}`; or give --digest",
        )
    tests = "".join(f"    {shlex.join(one.argv)}\n" for one in plan.smoke if not one.needs_device)
    labels = "".join(f"    {name} {value}\n" for name, value in plan.labels if value)
    vendor = plan.resolution.vendor if plan.resolution else "none"
    flags = _FLAGS.get(vendor, "")
    run = " ".join(part for part in ("apptainer exec", flags, "IMAGE.sif", "COMMAND") if part)
    return (
        f"Bootstrap: docker\nFrom: {pinned}\n\n"
        f"%labels\n{labels}\n"
        f"%test\n    set -e\n{tests}\n"
        f"%help\n    {plan.name}, made by tk from its plan {plan.key[:12]}.\n    Run: {run}\n"
    )
