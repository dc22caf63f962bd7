"""Sockets that the SDK hands out for attached streams: found below its wrappers, without a time limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

STDOUT, STDERR = 1, 2
"""Numbers of the streams that an engine mixes into one connection."""


def raw_socket(stream: Any) -> Any:
    """The socket below what the SDK returns, which hides it in a file object for local engines."""
    return getattr(stream, "_sock", stream)


def never_time_out(stream: Any) -> None:
    """Programs may be silent for hours; the SDK's sockets have the time limit of an answer."""
    settimeout = getattr(raw_socket(stream), "settimeout", None)
    if settimeout is not None:
        settimeout(None)


def frames(stream: Any) -> Iterator[tuple[int, bytes]]:
    """What a container without a terminal writes: pairs of stream number and bytes, to the end."""
    from docker.utils.socket import frames_iter

    yield from frames_iter(stream, tty=False)


@contextlib.contextmanager
def closing_stream(stream: Any) -> Iterator[None]:
    """Close the connection at the end: the SDK's file object, its answer, and the socket below both."""
    try:
        yield
    finally:
        for one in (stream, getattr(stream, "_response", None), raw_socket(stream)):
            if one is not None:
                with contextlib.suppress(OSError, ValueError):  # one may have closed the next
                    one.close()
