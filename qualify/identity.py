"""Identities: BLAKE3 of canonical documents, so that equal content has one name and any other byte another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blake3 import blake3

if TYPE_CHECKING:  # Whoever hashes files needs no documents.
    from qualify.model import Document

#: A kind is part of the key, so that a module and, say, a contract of the same bytes never share an identity (R6.3).
_CONTEXT = "qualify 2026-10 identity of a {kind}"


def identify(kind: str, document: Document) -> str:
    """64 hexadecimal digits: the document's canonical bytes hashed under a key derived for `kind`."""
    return identify_bytes(kind, document.canonical())


def identify_bytes(kind: str, canonical: bytes) -> str:
    """As `identify`, of canonical bytes that somebody has already."""
    return blake3(canonical, derive_key_context=_CONTEXT.format(kind=kind)).hexdigest()


def content(data: bytes) -> str:
    """64 hexadecimal digits: the plain BLAKE3 of bytes, as `b3sum` prints it."""
    return blake3(data).hexdigest()
