"""What every shipped name installs from the Python index, and for which Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.support.recipes import builds, plan

REQUIRES_PYTHON = Path(__file__).with_name("requires_python.json")
"""Pin -> the Pythons that it asks for, as the index has it; written by tests/images/test_pip_pins.py."""
_OLD_PIP = "3.8"
"""Ubuntu 20.04's Python: its pip is 20.0, which does not know the tags of PEP 600."""


@dataclass(frozen=True, slots=True)
class PythonInstall:
    """One `pip install`: `whole` says that nothing but the pins is installed; `glibc` is the base's."""

    python: str
    glibc: str
    pins: tuple[str, ...]
    whole: bool = False

    @property
    def platforms(self) -> list[str]:
        """The tags of wheels that this pip takes on x86-64."""
        known = ["manylinux1", "manylinux2010", "manylinux2014"]
        if self.python != _OLD_PIP:
            known += [f"manylinux_2_{one}" for one in range(17, int(self.glibc.split(".")[1]) + 1)]
        return [f"{one}_x86_64" for one in known]


def python_installs(name: str) -> list[PythonInstall]:
    """The installs of a name's image and of its components' builds."""
    resolution = plan(name).resolution
    assert resolution is not None
    provides = resolution.provides
    glibc = provides["glibc"]
    found = [PythonInstall(provides["tk-python"], glibc, plan(name).pip)]
    for component, need in builds(name):
        assert component.build is not None
        found.append(PythonInstall(provides["python"], glibc, need.pip))
        found.append(PythonInstall(provides["python"], glibc, component.build.python_packages, whole=True))
    return [one for one in found if one.pins]
