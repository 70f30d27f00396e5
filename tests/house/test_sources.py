"""House rules that no linter of ours knows."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import gates
import qualify
from qualify.model import Document
from tests.house.tree import ROOT, files, sources, syntax, where

MAX_LINES = 400
CODE = ("qualify", "gates")
ALL = (*CODE, "tests", "demo", "benchmarks")
#: Joined here so that this file does not contain what it refuses.
MACHINE = tuple("".join(parts) for parts in (("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/opt/py", "pi")))
HOSTS = tuple("".join(parts) for parts in (("py", "pi.org"), ("python", "hosted"), ("npm", "js."), ("deb.", "debian")))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Where and what a file imports, as dotted names."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            yield from ((where(path, node), alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((where(path, node), f"{node.module}.{alias.name}") for alias in node.names)


def uses(path: Path) -> Iterator[tuple[str, str]]:
    """Where and what dotted names a file reads, `pytest.mark.skip` or `self.channel.recv`."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Attribute):
            yield where(path, node), ast.unparse(node)


def found(names: Callable[[Path], Iterator[tuple[str, str]]], pattern: str, *folders: str) -> list[str]:
    return [f"{at} {name}" for path in sources(*folders) for at, name in names(path) if re.fullmatch(pattern, name)]


def test_no_file_is_long() -> None:
    long = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in sources(*ALL)}
    assert not {path: lines for path, lines in long.items() if lines > MAX_LINES}


def test_nothing_is_mocked() -> None:
    """No mock library; `monkeypatch` sets the environment and the working folder, nothing of Python's."""
    assert not found(imports, r"(unittest\.)?mock(\..*)?|pytest_mock.*", "tests")
    assert not found(uses, r"mocker\..*|monkeypatch\.(?!setenv$|delenv$|chdir$).*", "tests")


def test_nothing_is_unpickled() -> None:
    """What a worker sends comes in as bytes and closed models; a connection's `recv()` would unpickle it."""
    assert not found(imports, r"(pickle|marshal|shelve|dill)(\..*)?", *CODE)
    bare = [
        where(path, node)
        for path in sources(*CODE)
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "recv" and not node.args and not node.keywords
    ]
    assert not bare


def test_no_test_can_skip() -> None:
    """The suite's conftest fails a skip when it happens; this refuses the words."""
    words = r"(pytest|unittest)\.(mark\.)?(skip|skipif|skipIf|skipUnless|SkipTest|importorskip|xfail)"
    assert not found(uses, words, "tests")
    assert not found(imports, words, "tests")


def test_no_machine_and_no_registry_is_named() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in files()
        for word in (*MACHINE, *HOSTS)
        if word.encode() in path.read_bytes()
    ]
    assert not named


def modules() -> Iterator[ModuleType]:
    """Every module of ours; a worker's whose device library is not here has no device here either."""
    for package in (qualify, gates):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name.endswith("__main__"):
                continue
            try:
                yield importlib.import_module(info.name)
            except ModuleNotFoundError as error:
                if not info.name.startswith("qualify.workers.") or error.name not in ("cuda", "triton"):
                    raise


def documents(kind: type[Document]) -> Iterator[type[Document]]:
    for child in kind.__subclasses__():
        yield child
        yield from documents(child)


def holds_float(annotation: Any) -> bool:
    return annotation is float or any(holds_float(argument) for argument in get_args(annotation))


def test_no_document_has_a_float() -> None:
    """Facts are integers, ratios and strings, so that a verdict re-derives on any machine (R5.3, R5.4)."""
    assert len(list(modules())) > len(sources(*CODE)) // 2
    ours = [kind for kind in documents(Document) if kind.__module__.partition(".")[0] in CODE]
    assert ours
    floats = [
        f"{kind.__module__}.{kind.__name__}.{name}"
        for kind in ours
        for name, field in kind.model_fields.items()
        if holds_float(field.annotation)
    ]
    assert not floats
