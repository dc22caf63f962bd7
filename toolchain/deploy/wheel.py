"""A wheel with a library and its loader: `pip install` of it, and nothing else, runs the model.

Formats: PEP 427 (wheel), 639 (licences, metadata 2.4), 770 (bill of materials), 600 (platform tags).
"""

from __future__ import annotations

import base64
import csv
import io
import shutil
import zipfile
from collections.abc import Sequence
from email.message import EmailMessage
from email.policy import EmailPolicy
from pathlib import Path

from compiler import DynamicNeeds, __version__, stream_atomic
from toolchain.deploy.bill import package_bill
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.packed import PackedFile
from toolchain.deploy.texts import filled
from toolchain.deploy.tree import licence_texts, loader_files

_PYTHON = ">=3.10"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest that a zip can say
_CHUNK_BYTES = 1 << 20
_GLIBC_OF = {
    "GLIBCXX": {(3, 4, 19): 17, (3, 4, 22): 24, (3, 4, 24): 27, (3, 4, 28): 31, (3, 4, 29): 34,
                (3, 4, 30): 35, (3, 4, 33): 39},
    "CXXABI": {(1, 3, 7): 17, (1, 3, 10): 24, (1, 3, 11): 27, (1, 3, 12): 31, (1, 3, 13): 34,
               (1, 3, 15): 39},
    "GCC": {(4, 7, 0): 17, (7, 0, 0): 27, (12, 0, 0): 35, (14, 0, 0): 39},
}  # fmt: skip
"""Highest versions of symbols on all systems with a glibc 2.N: auditwheel 6.8, manylinux-policy.json."""
_OLDEST_GLIBC = 17


def wheel_name(library: PackagedLibrary) -> str:
    """The name that the wheel of a library must have."""
    return f"{library.module}-{library.version}-{_tag(library.needs)}.whl"


def platform_tag(needs: DynamicNeeds) -> str:
    """`manylinux_2_N_<machine>`: the oldest systems with all symbols; `linux_<machine>` if none is known."""
    glibc = needs.versions.get("GLIBC", (2, _OLDEST_GLIBC))
    least = [max(_OLDEST_GLIBC, glibc[1]) if glibc[0] == 2 and len(glibc) > 1 else None]
    for family, table in _GLIBC_OF.items():
        if version := needs.versions.get(family):
            least.append(next((glibc for highest, glibc in table.items() if version <= highest), None))
    known = [one for one in least if one is not None]
    if len(known) != len(least):
        return f"linux_{needs.machine}"
    return f"manylinux_2_{max(known)}_{needs.machine}"


def wheel_files(library: PackagedLibrary, licence_files: Sequence[Path] = ()) -> list[PackedFile]:
    """All files of the wheel of a library, with their record at the end."""
    info = f"{library.module}-{library.version}.dist-info"
    licences = list(licence_texts(f"{info}/licenses", licence_files))
    metadata = _metadata(library, [one.path.removeprefix(f"{info}/licenses/") for one in licences])
    files = [
        *(PackedFile(f"{library.module}/{name}", text.encode()) for name, text in loader_files().items()),
        PackedFile(f"{library.module}/model.so", library.path, executable=True),
        *licences,
        PackedFile(f"{info}/METADATA", metadata),
        PackedFile(f"{info}/WHEEL", _wheel_file(library)),
        PackedFile(f"{info}/sboms/sbom.cdx.json", package_bill(library)),
    ]
    return [*files, _record(files, f"{info}/RECORD")]


def write_wheel(files: Sequence[PackedFile], output: Path) -> None:
    """Write the files of a wheel to `output`; raises HostError when the place cannot be written."""
    with stream_atomic(output) as stream, zipfile.ZipFile(stream, "w") as archive:
        for one in files:
            member = zipfile.ZipInfo(one.path, _EPOCH)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o100755 if one.executable else 0o100644) << 16
            member.file_size = one.size
            with one.open() as source, archive.open(member, "w") as target:
                shutil.copyfileobj(source, target, _CHUNK_BYTES)


def _tag(needs: DynamicNeeds) -> str:
    return f"py3-none-{platform_tag(needs)}"


def _metadata(library: PackagedLibrary, licences: Sequence[str]) -> bytes:
    message = EmailMessage(EmailPolicy(utf8=True, max_line_length=0, linesep="\n"))
    message["Metadata-Version"] = "2.4"
    message["Name"] = library.distribution
    message["Version"] = library.version
    message["Summary"] = library.title
    message["License-Expression"] = library.licences
    for one in licences:
        message["License-File"] = one
    message["Requires-Python"] = _PYTHON
    message["Description-Content-Type"] = "text/markdown"
    return bytes(message) + filled("METADATA.md.in", library).encode()


def _wheel_file(library: PackagedLibrary) -> bytes:
    lines = ["Wheel-Version: 1.0", f"Generator: tk {__version__}", "Root-Is-Purelib: false"]
    return "\n".join([*lines, f"Tag: {_tag(library.needs)}", ""]).encode()


def _record(files: Sequence[PackedFile], path: str) -> PackedFile:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for one in files:
        digest = base64.urlsafe_b64encode(bytes.fromhex(one.sha256)).rstrip(b"=").decode()
        writer.writerow((one.path, f"sha256={digest}", one.size))
    writer.writerow((path, "", ""))
    return PackedFile(path, text.getvalue().encode())
