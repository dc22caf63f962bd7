"""What a deployment needs as files: library, header, examples, loader, licences, bill of materials."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from compiler import interface_header, python_loader
from toolchain.data import data_directory, own_licence
from toolchain.deploy.bill import package_bill
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.packed import PackedFile, with_checksums
from toolchain.deploy.texts import filled, shipped_text

_EXAMPLES = ("run_model.c", "run_linked_model.cpp")


def tree_files(library: PackagedLibrary, licence_files: Sequence[Path] = ()) -> list[PackedFile]:
    """All files of a package for any language, with their checksums."""
    module = library.module
    texts = {
        "README.md": filled("README.md.in", library),
        "include/tk_model.h": interface_header(),
        f"lib/cmake/{module}/{module}-config.cmake": filled("config.cmake.in", library),
        f"lib/cmake/{module}/{module}-config-version.cmake": filled("config-version.cmake.in", library),
        f"lib/pkgconfig/{module}.pc": filled("package.pc.in", library),
        "examples/CMakeLists.txt": filled("CMakeLists.txt.in", library),
    }
    texts |= {f"python/{module}/{name}": text for name, text in loader_files().items()}
    files = [PackedFile(path, text.encode()) for path, text in texts.items()]
    files += [PackedFile(f"examples/{one}", data_directory("examples") / one) for one in _EXAMPLES]
    files += licence_texts("licences", licence_files)
    return with_checksums(
        [
            *files,
            PackedFile(f"lib/lib{module}.so", library.path, executable=True),
            PackedFile("manifest.json", manifest_text(library)),
            PackedFile("sbom.cdx.json", package_bill(library)),
        ]
    )


def loader_files() -> dict[str, str]:
    """The package for Python without its library: texts by file name."""
    return {**python_loader(), "py.typed": ""}


def manifest_text(library: PackagedLibrary) -> bytes:
    """The library's manifest for people and programs."""
    text = json.dumps(library.manifest, indent=1, ensure_ascii=True)
    return f"{text}\n".encode()


def licence_texts(folder: str, given: Sequence[Path] = ()) -> Iterator[PackedFile]:
    """Our licence and notice, and the model's own files, numbered as their names are anything."""
    yield PackedFile(f"{folder}/Apache-2.0.txt", own_licence().encode())
    yield PackedFile(f"{folder}/NOTICE.txt", shipped_text("NOTICE.txt").encode())
    for number, path in enumerate(given, 1):
        yield PackedFile(f"{folder}/model-{number}.txt", path)
