"""What the number of a caller's stream says, as in DLPack's Python protocol (`__dlpack__(stream=...)`)."""

from __future__ import annotations

from compiler.core.diagnostics import UsageError

CALLERS_STREAM = 2
"""TK_CONTEXT_CALLERS_STREAM."""
_OWN = -1
_NAMED_BY_CUDA = {1: "legacy", 2: "per-thread"}
"""CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are handles with just these values."""


def stream_option(target: str, stream: int | None) -> tuple[int | None, int]:
    """The stream for `tk_context_options` and the flag that goes with it.

    None and -1: one of the context's own, whose order with other streams is the caller's business. CUDA: 1 is
    the legacy default stream, 2 the per-thread one, 0 could be either. ROCm: 0 is the default stream. All
    else are pointers. Raises UsageError for what means nothing, or more than one thing, to the target.
    """
    if stream is None or stream == _OWN:
        return None, 0
    cuda, rocm = target.startswith("cuda"), target.startswith("rocm")
    if cuda and stream == 0:
        raise UsageError(
            "stream 0 may be either of CUDA's default streams",
            where="stream=0",
            hint="1 is the legacy default stream, 2 the per-thread one, -1 one of the context's own",
        )
    if stream < 0 or (rocm and stream in _NAMED_BY_CUDA):
        raise UsageError(
            f"there is no stream {stream} for {target}",
            where=f"stream={stream}",
            hint="0 is the default stream of ROCm, -1 one of the context's own; others are pointers",
        )
    return (None, CALLERS_STREAM) if stream == 0 else (stream, 0)
