"""How much is read of anything, before a parser or a model sees a byte of it."""

from __future__ import annotations

MAX_DOCUMENT_BYTES = 4 << 20  # A plan of a thousand subjects is under 3 MiB; facts are far smaller.
