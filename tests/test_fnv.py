from __future__ import annotations

import pytest

from qualify.fnv import fnv1a64


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", "cbf29ce484222325"),
        (b"a", "af63dc4c8601ec8c"),
        (b"foobar", "85944171f73967e8"),
        (b"\x00", "af63bd4c8601b7df"),
        (b"\x00\x00", "08328807b4eb6fed"),
    ],
)
def test_published_vectors(data: bytes, digest: str) -> None:
    assert fnv1a64(data) == digest
    assert fnv1a64(bytearray(data)) == digest
