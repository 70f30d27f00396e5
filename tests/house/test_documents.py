"""The documents agree with the code and with each other."""

import re
from pathlib import Path

import pytest

from qualify.errors import Exit
from tests.house.tree import ROOT, files

RECORDS = sorted((ROOT / "docs/adr").glob("[0-9]*.md"))


def test_the_readme_explains_every_exit_code() -> None:
    codes = re.findall(r"^\| `?(\d+)`? \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert [int(code) for code in codes] == sorted(Exit)


@pytest.mark.parametrize("path", files(".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https:)([^)\s]+)\)", path.read_text()):
        file = target.partition("#")[0]
        assert not file or (path.parent / file).exists(), target


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {name for path in files(".md") for name in re.findall(r"`make ([a-z]+)", path.read_text())}
    assert named <= targets


def test_decisions_are_numbered_listed_and_whole() -> None:
    assert [path.name[:4] for path in RECORDS] == [f"{number:04}" for number in range(1, len(RECORDS) + 1)]
    index = (ROOT / "docs/adr/README.md").read_text()
    for path in RECORDS:
        assert f"]({path.name})" in index
        headings = re.findall(r"^## (.+)$", path.read_text(), flags=re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], path.name
