"""What the manifest of a model library says; needs neither numpy nor onnx, unless kernels are replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.core.precision import precision_of
from compiler.reports import (
    FreeDimension,
    ImageInfo,
    KernelInfo,
    LaunchInfo,
    LibraryReport,
    RecordingInfo,
    ResourceInfo,
    SpecialisationInfo,
    TensorInfo,
)
from compiler.runtime.manifest import manifest_of


def inspect_library(
    path: Path, *, kernels: bool = False, check: bool = False, machine_code: bool = False
) -> LibraryReport:
    """What the manifest of a library says; runs none of its code.

    `kernels` adds the text of every kernel's loops and trace, `check` replays every trace and tells whether
    the source text is the same to the byte. `machine_code` adds what that of a GPU says of each launch.
    Raises BadInputError when the file is no model library; for machine code UsageError where there is none,
    HostError where its disassembler is missing.
    """
    manifest = manifest_of(path)
    found = [
        _kernel(number, entry, manifest["resources"], texts=kernels)
        for number, entry in enumerate(manifest["kernels"])
    ]
    module_replays = None
    if check:
        from compiler.replay import replay_library  # the whole compiler, needed for this alone

        same, module_replays = replay_library(path, manifest)
        found = [replace(one, replays=replays) for one, replays in zip(found, same, strict=True)]
    unread: tuple[str, ...] = ()
    if machine_code:
        from compiler.device_inspection import (
            with_device_code,  # the table of every GPU, needed for this alone
        )

        found, unread = with_device_code(path, found)
    return LibraryReport(
        path=path,
        target=manifest["target"],
        arch=manifest["arch"],
        features=tuple(manifest["features"]),
        inputs=_manifest_tensors(manifest["inputs"]),
        outputs=_manifest_tensors(manifest["outputs"]),
        kernels=tuple(found),
        flops=manifest["flops"],
        library_bytes=path.stat().st_size,
        constant_bytes=manifest["constant_bytes"],
        arena_bytes=manifest["arena_bytes"],
        sample_bytes=manifest.get("sample_bytes", 0),
        scratch_bytes=manifest["scratch_bytes"],
        toolchain=manifest["toolchain"],
        images=tuple(ImageInfo(**item) for item in manifest["images"]),
        precision=precision_of(manifest),
        module_replays=module_replays,
        free=_free(manifest),
        states=tuple((one["input"], one["output"]) for one in manifest.get("states", ())),
        specialisations=tuple(_specialisation(one, manifest) for one in manifest.get("specialisations", ())),
        recording=RecordingInfo(**manifest["recording"]) if "recording" in manifest else None,
        unread=unread,
    )


def _free(manifest: Mapping[str, Any]) -> tuple[FreeDimension, ...]:
    batch = manifest.get("batch")
    first = [FreeDimension(batch["name"], 1, batch["largest"])] if batch else []
    return (*first, *(FreeDimension(**one) for one in manifest.get("symbols", ())))


def _specialisation(entry: Mapping[str, Any], manifest: Mapping[str, Any]) -> SpecialisationInfo:
    narrowed = (
        replace(free, minimum=least, maximum=most)
        for free, (least, most) in zip(_free(manifest), entry["ranges"], strict=True)
        if (least, most) != (free.minimum, free.maximum)
    )
    return SpecialisationInfo(
        sizes=tuple(narrowed),
        kernels=tuple(sorted({step["kernel"] for step in entry["steps"]})),
        flops=entry["flops"],
        arena_bytes=entry["arena_bytes"],
        sample_bytes=entry["sample_bytes"],
    )


def _manifest_tensors(entries: list[dict[str, Any]]) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(item["name"], item["dtype"], tuple(item["shape"]), tuple(item.get("labels", ())))
        for item in entries
    )


def _kernel(
    number: int, entry: dict[str, Any], resources: list[dict[str, Any]], *, texts: bool
) -> KernelInfo:
    return KernelInfo(
        index=number,
        kind=entry["kind"],
        steps=entry["steps"],
        flops=entry["flops"],
        bytes=entry["bytes"],
        nodes=tuple(entry["nodes"]),
        func=entry["func"] if texts else "",
        trace=entry["trace"] if texts else "",
        launches=tuple(_launch(item, resources) for item in entry["launches"]),
        record=entry.get("record", ""),
    )


def _shared(resource: dict[str, Any], launch: dict[str, Any]) -> int | None:
    """Bytes of a kernel's own arrays, or where it has none, what its launch asks for."""
    own: int | None = resource["shared_bytes"]
    return launch["shared_bytes"] if own == 0 else own


def _launch(entry: dict[str, Any], resources: list[dict[str, Any]]) -> LaunchInfo:
    found = tuple(
        ResourceInfo(one["arch"], one["registers"], one["spills"], _shared(one, entry), one["private_bytes"])
        for one in resources
        if one["kernel"] == entry["name"]
    )
    return LaunchInfo(
        entry["name"], tuple(entry["grid"]), tuple(entry["block"]), entry["shared_bytes"], found
    )
