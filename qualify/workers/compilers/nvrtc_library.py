"""NVRTC of one toolkit's folder, and of no other, through its C interface.

A general binding looks for the library by itself and knows two majors at a time; here the folder is the toolkit. The
interface used has been the same since 11.8. Both libraries are loaded by their full paths before anything asks for
them by name, so that the compiler's own search finds the ones that are there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qualify.cuda_toolkits import ToolkitFiles
from qualify.errors import RigError

#: Results that a source or an option can cause: no memory, a bad program, option or name, a compilation's or an
#: internal error. Any other is the rig's.
_REFUSALS = {1, 4, 5, 6, 10, 11}


@dataclass(frozen=True)
class Compilation:
    """One call: whether it succeeded, everything it printed, and what it made; `lowered` names each expression."""

    succeeded: bool
    result: str
    log: bytes
    ptx: bytes
    cubin: bytes
    lowered: Mapping[str, str]


class Nvrtc:
    """The loaded library. One process holds one."""

    def __init__(self, toolkit: ToolkitFiles) -> None:
        try:
            ctypes.CDLL(str(toolkit.builtins), mode=ctypes.RTLD_GLOBAL)
            self._library = ctypes.CDLL(str(toolkit.library), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise RigError(
                f"expected {toolkit.library} to load, got {error}", fix="install the toolkit again"
            ) from error
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._must("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.release = (major.value, minor.value)
        if self.release != toolkit.release:
            raise RigError(
                f"expected NVRTC {toolkit.release} in {toolkit.library}, got {self.release}",
                fix="keep each toolkit in a folder of its own",
            )

    def architectures(self) -> tuple[int, ...]:
        """The numbers of the targets that it compiles for, suffixes aside."""
        count = ctypes.c_int()
        self._must("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._must("nvrtcGetSupportedArchs", numbers)
        return tuple(numbers)

    def compile(
        self, text: str, headers: Mapping[str, bytes], options: Sequence[str], names: Sequence[str] = ()
    ) -> Compilation:
        """Compile a text whose includes are `headers` by name; `names` are the expressions whose symbols are asked.

        A refusal is an answer. Raises RigError for a failure that no source causes, ValueError for a NUL in a text.
        """
        if "\0" in text or any(b"\0" in content for content in headers.values()):
            raise ValueError("a NUL in a source, which ends it for the compiler")
        program = ctypes.c_void_p()
        contents = (ctypes.c_char_p * len(headers))(*headers.values())
        paths = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
        self._must(
            "nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"module.cu", len(headers), contents, paths
        )
        try:
            return self._compiled(program, options, names)
        finally:
            self._must("nvrtcDestroyProgram", ctypes.byref(program))

    def _compiled(self, program: ctypes.c_void_p, options: Sequence[str], names: Sequence[str]) -> Compilation:
        for name in names:
            self._must("nvrtcAddNameExpression", program, name.encode())
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        result = self._library.nvrtcCompileProgram(program, len(options), given)
        if result and result not in _REFUSALS:
            raise RigError(f"NVRTC failed by itself: {self._name(result)}", fix="run it again; report it if it stays")
        lowered = {} if result else {name: self._lowered(program, name) for name in names}
        return Compilation(
            succeeded=result == 0,
            result=self._name(result),
            log=self._bytes(program, "ProgramLog"),
            ptx=b"" if result else self._bytes(program, "PTX"),
            cubin=b"" if result else self._bytes(program, "CUBIN"),
            lowered=lowered,
        )

    def _lowered(self, program: ctypes.c_void_p, name: str) -> str:
        pointer = ctypes.c_char_p()
        self._must("nvrtcGetLoweredName", program, name.encode(), ctypes.byref(pointer))
        return (pointer.value or b"").decode()

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._must(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._must(f"nvrtcGet{what}", program, buffer)
        return buffer.raw[: size.value]

    def _must(self, function: str, *arguments: object) -> None:
        result = getattr(self._library, function)(*arguments)
        if result:
            raise RigError(f"{function} failed: {self._name(result)}", fix="install the toolkit again")

    def _name(self, result: int) -> str:
        name: bytes | None = self._library.nvrtcGetErrorString(result)
        return (name or b"unknown").decode()
