"""What the number of a caller's stream says, as in DLPack's Python protocol (`__dlpack__(stream=...)`)."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.diagnostics import UsageError

CALLERS_STREAM = 2
"""TK_CONTEXT_CALLERS_STREAM."""
_OWN = -1
_MOST_OF_NUMBERS = 2
"""Numbers up to this one are no pointers."""


def stream_option(default_streams: Sequence[int], stream: int | None) -> tuple[int | None, int]:
    """The stream for `tk_context_options` and the flag that goes with it.

    default_streams: the numbers that the device's default streams have in DLPack. None and -1: a stream of
    the context's own, whose order with others is the caller's business. Raises UsageError for a number that
    names no stream of the device, as 0 where it could be either of two default ones.
    """
    if stream is None or stream == _OWN:
        return None, 0
    if stream in default_streams:
        return stream or None, CALLERS_STREAM
    if stream > _MOST_OF_NUMBERS:
        return stream, 0
    numbers = ", ".join(map(str, default_streams))
    raise UsageError(
        f"{stream} is the number of no stream here",
        where=f"stream={stream}",
        why=f"DLPack's numbers of this device's default streams: {numbers or 'none'}",
        hint="-1 is one of the context's own, all above 2 are pointers",
    )
