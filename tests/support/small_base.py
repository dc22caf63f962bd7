"""An image's root file system of a few programs of this machine: some MB, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

PROGRAMS = ("sh", "cat", "grep", "id", "ls", "mkdir", "sha256sum", "sleep", "true")
"""What the steps of tests/support/plans.py call."""
FOLDERS = ("etc", "opt", "proc", "run", "sys", "tmp", "var/cache")


def write_small_base(archive: Path) -> Path:
    """Write the archive: the programs, the libraries that they load, and /etc/os-release."""
    with tarfile.open(archive, "w") as tar:
        for folder in FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, path in sorted(_files().items()):
            tar.add(path.resolve(), name.lstrip("/"))
    return archive


def _files() -> dict[str, Path]:
    """Path inside -> file here."""
    found = {"/etc/os-release": Path("/etc/os-release")}
    for name in PROGRAMS:
        path = shutil.which(name)
        assert path is not None, f"this machine has no program `{name}`"
        found[f"/bin/{name}"] = Path(path)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        found |= {one: Path(one) for one in re.findall(r"(/\S+) \(0x", listed)}
    return found
