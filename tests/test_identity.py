"""Equal documents have one identity; another kind or another byte has another."""

from qualify.identity import content, identify
from qualify.model import Document


class Pair(Document):
    left: str
    right: str


def test_equal_documents_have_one_identity() -> None:
    assert identify("module", Pair(left="a", right="bc")) == identify("module", Pair(right="bc", left="a"))


def test_another_kind_or_a_moved_byte_has_another_identity() -> None:
    found = {
        identify("module", Pair(left="a", right="bc")),
        identify("contract", Pair(left="a", right="bc")),
        identify("module", Pair(left="ab", right="c")),
        content(Pair(left="a", right="bc").canonical()),
    }
    assert len(found) == 4


def test_content_is_the_published_blake3_of_nothing() -> None:
    assert content(b"") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
