"""Lines of results, one JSON object a line: a `run` that says where, then what was seen in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@dataclass
class Results:
    """One file of a folder, written line by line, so that what was seen before an end stays."""

    path: Path

    @classmethod
    def begin(cls, folder: Path, where: Line) -> Results:
        """A new file named by time and board."""
        folder.mkdir(parents=True, exist_ok=True)
        started = datetime.now(UTC)
        board = "".join(letter if letter.isalnum() else "-" for letter in where["board"].lower())
        made = cls(folder / f"{started:%Y%m%dT%H%M%SZ}-{board}.jsonl")
        made.add({"kind": "run", "started_utc": f"{started:%Y-%m-%dT%H:%M:%SZ}", **where})
        return made

    def add(self, line: Line) -> None:
        """Keep one line, and show it."""
        with self.path.open("a") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")


def read(*places: Path) -> Iterator[Line]:
    """Every line of files and folders, with its run's own under `run`."""
    for place in places:
        for path in sorted(place.glob("*.jsonl")) if place.is_dir() else [place]:
            run: Line = {}
            for text in path.read_text().splitlines():
                line = json.loads(text)
                if line["kind"] == "run":
                    run = line
                yield {**line, "run": run}
