"""Where a buffer's elements lie in an arena: in a row, or in runs with other bytes between them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Annotated

from pydantic import Field

from qualify.model import Document, Name


class Placement(Document):
    """A buffer of the arena: where its elements lie. Bytes outside all elements carry the zone pattern.

    `size_bytes` counts elements. They lie in a row, or in runs along `axes`: (count, stride in bytes) each, outermost
    first.
    """

    buffer: str
    dtype: Name
    offset_bytes: Annotated[int, Field(ge=0)]
    size_bytes: Annotated[int, Field(ge=0)]
    axes: tuple[tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]], ...] = ()

    @property
    def run_bytes(self) -> int:
        """The elements that lie in a row."""
        return self.size_bytes // prod(count for count, _ in self.axes)

    @property
    def span_bytes(self) -> int:
        """From the first element's start to the last one's end, with what lies between."""
        return self.run_bytes + sum((count - 1) * stride for count, stride in self.axes)

    def runs(self) -> Iterator[int]:
        """Where each run starts, as an offset into the arena, in the order of the elements."""
        for index in product(*(range(count) for count, _ in self.axes)):
            yield self.offset_bytes + sum(at * stride for at, (_, stride) in zip(index, self.axes, strict=True))
