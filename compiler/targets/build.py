"""Compile kernel sources to objects: in parallel, cached by content, each as soon as its text is there."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from compiler.core.cache import ContentCache, content_key
from compiler.core.compilers import compiled
from compiler.core.settings import Settings
from compiler.runtime.library import INCLUDE, Toolchain, headers_digest, start_runtime
from compiler.targets.target import Target
from compiler.targets.toolchain import Cxx


class KernelBuild(AbstractContextManager["KernelBuild"]):
    """Compiles sources in the background; use as a context manager and call `submit` for each source.

    `hits` has the number of kernels in each whose object came from the cache; `toolchain` links them with the
    runtime, which has the files for `runtime`.
    """

    def __init__(self, target: Target, settings: Settings, *, extra_flags: Sequence[str] = ()) -> None:
        self.cxx = target.cxx(settings)
        self.flags = (*target.flags(self.cxx), *extra_flags)
        self.toolchain = Toolchain(self.cxx.path, self.cxx.identity, tuple(extra_flags), jobs=settings.jobs)
        self.cache = ContentCache(settings.cache_dir / "objects")
        self.hits: dict[str, int] = {}
        self._pool = ThreadPoolExecutor(max_workers=settings.jobs)
        self._headers = headers_digest(INCLUDE)
        self.runtime = target.device.runtime if target.device is not None else ("none",)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=error is not None)

    def start_runtime(self) -> None:
        """Compile the runtime meanwhile; where that fails, linking says so."""
        start_runtime(self.toolchain, self.cache, self.runtime, self._pool)

    def submit(self, name: str, text: str, kernels: int = 1) -> Future[Path]:
        """Start compiling one source; the result is the path of the object. Raises BuildError through it.

        `name` appears in messages only.
        """
        return self._pool.submit(self._object, name, text, kernels)

    def _object(self, name: str, text: str, kernels: int) -> Path:
        key = content_key("object", text, self._headers, self.cxx.identity, *self.flags)
        if found := self.cache.get(key, ".o"):
            self.hits[name] = kernels
            return found
        return self.cache.made(key, lambda: compile_object(self.cxx, self.flags, name, text), ".o")


def compile_object(cxx: Cxx, flags: Sequence[str], name: str, text: str, *, output: str = "-c") -> bytes:
    """The bytes that the compiler makes of `text`: an object with `-c`, assembly with `-S`."""
    argv = [cxx.path, *flags, "-I", str(INCLUDE), output, "kernel.cpp", "-o", "kernel.out"]
    what = f"the C++ compiler rejected generated code ({name})"
    return compiled(argv, {"kernel.cpp": text}, "kernel.out", what)
