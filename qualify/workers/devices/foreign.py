"""An outside implementation on a device: trusted Python of a cohort, which enqueues a pass where a kernel would run.

The function is `(cell, stream, buffers) -> (enqueue, library)`. `cell` maps the cell's names to integers and strings,
`stream` is the device's own handle, `buffers` maps each buffer argument to its array on the device. `enqueue` takes
nothing, is called once a pass and may be captured; `library` is the implementation and its version as it names itself.
Only devices that are named `..._compared` have one of these.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from qualify.comparators import Comparator
from qualify.errors import DocumentError
from qualify.placement import Placement
from qualify.steps import Slot
from qualify.workers.devices.binding import StepRefused

Enqueue = Callable[[], object]


class Foreign:
    """One comparator, loaded."""

    def __init__(self, code: bytes, symbols: Sequence[str]) -> None:
        """Raises StepRefused for bytes that are no comparator, and for Python that does not load."""
        try:
            self._asked = Comparator.parse(code)
        except DocumentError as error:
            raise StepRefused(f"no comparator: {error}") from error
        if [*symbols] != [self._asked.function]:
            raise StepRefused(f"{self._asked.function} is loaded as {', '.join(symbols)}")
        namespace: dict[str, Any] = {"__name__": "comparators", "__file__": self._asked.path}
        with _Told():
            exec(compile(self._asked.code, self._asked.path, "exec"), namespace)  # noqa: S102 -- trusted, the cohort's.
        function = namespace.get(self._asked.function)
        if not callable(function):
            raise StepRefused(f"{self._asked.path} has no function {self._asked.function}")
        self._function: Callable[..., Any] = function
        #: The implementation as it names itself; known once a pass was prepared.
        self.library: str | None = None

    def arrays(
        self, slots: Sequence[Slot], place: Callable[[str], Placement], number: int
    ) -> dict[str, tuple[Placement, tuple[int, ...]]]:
        """Where each buffer argument of a set lies, and its shape."""
        shapes = {argument.name: argument.shape for argument in self._asked.arguments}
        named = [(slot.argument, slot.buffer) for slot in slots if slot.buffer is not None]
        return {name: (place(f"{buffer}.{number}"), shapes[name]) for name, buffer in named}

    def prepare(self, stream: int, buffers: Mapping[str, Any]) -> Enqueue:
        """What enqueues one pass on these buffers. Raises StepRefused with the end of whatever it raises."""
        asked = self._asked
        cell = MappingProxyType({**asked.cell.integers, **asked.cell.names})
        with _Told():
            enqueue, library = self._function(cell, stream, MappingProxyType(buffers))
            if not callable(enqueue) or not isinstance(library, str):
                raise TypeError(f"{asked.function} returned {type(enqueue).__name__} and {type(library).__name__}")
            self.library = library
            made: Enqueue = enqueue
        return made


def told(enqueue: Enqueue) -> Callable[[], None]:
    """A pass whose own exceptions refuse the step."""

    def one() -> None:
        with _Told():
            enqueue()

    return one


class _Told:
    """Whatever the comparator raises refuses the step, and its last line is the reason."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, StepRefused):
            text = traceback.format_exception_only(error)[-1].strip()
            raise StepRefused(f"comparator: {text}") from error
