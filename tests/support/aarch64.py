"""Whether programs for aarch64 can be made and run here: a cross compiler, and elsewhere QEMU."""

from __future__ import annotations

import platform
import shutil

import pytest

from compiler.core.diagnostics import HostError
from compiler.core.settings import load_settings
from compiler.targets.toolchain import find_cxx

MACHINE = "aarch64"


def missing() -> str:
    """What is missing, in words; empty where nothing is."""
    try:
        find_cxx(load_settings(), MACHINE)
    except HostError as error:
        return error.what
    if platform.machine() != MACHINE and not shutil.which("qemu-aarch64"):
        return "qemu-user is not installed"
    return ""


needs_aarch64 = pytest.mark.skipif(bool(missing()), reason=missing() or "all is there")
