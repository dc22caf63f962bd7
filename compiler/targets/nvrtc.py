"""NVRTC, the CUDA compiler that is a library (NVRTC documentation, "User Interface")."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compiler.core.compilers import DEFECT
from compiler.core.diagnostics import BuildError
from compiler.targets.gpu import refused


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """The loaded library."""

    library: Any

    def version(self) -> str | None:
        """Its version as `12.9`, or None when it does not tell."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        status = self._function("Version")(ctypes.byref(major), ctypes.byref(minor))
        return None if status != 0 else f"{major.value}.{minor.value}"

    def supported(self) -> tuple[int, ...]:
        """The architectures that it knows, as numbers: 70 for sm_70."""
        count = ctypes.c_int()
        self._check(self._function("GetNumSupportedArchs")(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._function("GetSupportedArchs")(numbers))
        return tuple(sorted(numbers))

    def compile(self, text: str, options: Sequence[str], outputs: Sequence[str]) -> tuple[str, list[bytes]]:
        """(log, outputs) of a source text: outputs are called as in the functions that get them (`CUBIN`).

        Raises BuildError when the text is rejected. Other Python threads run meanwhile.
        """
        program = ctypes.c_void_p()
        made = self._function("CreateProgram")(ctypes.byref(program), text.encode(), b"model", 0, None, None)
        self._check(made)
        try:
            array = (ctypes.c_char_p * len(options))(*(item.encode() for item in options))
            status = self._function("CompileProgram")(program, len(options), array)
            log = self._output(program, "ProgramLog").rstrip(b"\0").decode(errors="backslashreplace")
            if status != 0:
                raise refused(f"NVRTC {' '.join(options)}", log)
            return log, [self._output(program, item) for item in outputs]
        finally:
            self._function("DestroyProgram")(ctypes.byref(program))

    def _output(self, program: ctypes.c_void_p, name: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(self._function(f"Get{name}Size")(program, ctypes.byref(size)))
        data = ctypes.create_string_buffer(max(1, size.value))
        if size.value:
            self._check(self._function(f"Get{name}")(program, data))
        return data.raw[: size.value]

    def _function(self, name: str) -> Any:
        return getattr(self.library, f"nvrtc{name}")

    def _check(self, status: int) -> None:
        if status != 0:
            text = self._function("GetErrorString")
            text.restype = ctypes.c_char_p
            raise BuildError("NVRTC failed", why=text(status).decode(), hint=DEFECT)
