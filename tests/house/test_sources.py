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
from tests.house.tree import ROOT, files, pyproject, sources, syntax, where

MAX_LINES = 400
CODE = ("qualify", "gates")
ALL = (*CODE, "tests", "demo", "benchmarks")
#: Joined here so that this file does not contain what it refuses.
MACHINE = tuple("".join(parts) for parts in (("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/opt/py", "pi")))
HOSTS = tuple("".join(parts) for parts in (("py", "pi.org"), ("python", "hosted"), ("npm", "js."), ("deb.", "debian")))
#: Bytes of OpenCL's scalar types.
WIDTHS = {"char": 1, "short": 2, "int": 4, "float": 4, "long": 8, "double": 8}


Named = Iterator[tuple[ast.expr | ast.stmt, str]]


def imports(path: Path) -> Named:
    """What a file imports, as dotted names, and where."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)


def uses(path: Path) -> Named:
    """What dotted names a file reads, `pytest.mark.skip` or `self.channel.recv`, and where."""
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Attribute):
            yield node, ast.unparse(node)


def found(names: Callable[[Path], Named], pattern: str, words: str, *folders: str) -> list[str]:
    """Where a name fits the pattern. Every name that does contains one of the words."""
    return [
        f"{where(path, node)} {name}"
        for path in spelling(words, *folders)
        for node, name in names(path)
        if re.fullmatch(pattern, name)
    ]


def spelling(words: str, *folders: str) -> list[Path]:
    """The files in which one of some words may stand: a letter beyond ASCII may be another spelling of one within."""
    texts = {path: path.read_bytes() for path in sources(*folders)}
    return [path for path, text in texts.items() if not text.isascii() or re.search(words.encode(), text)]


def test_no_file_is_long() -> None:
    long = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in sources(*ALL)}
    assert not {path: lines for path, lines in long.items() if lines > MAX_LINES}


def test_nothing_is_mocked() -> None:
    """No mock library; `monkeypatch` sets the environment and the working folder, nothing of Python's."""
    assert not found(imports, r"(unittest\.)?mock(\..*)?|pytest_mock.*", "mock", "tests")
    assert not found(uses, r"mocker\..*|monkeypatch\.(?!setenv$|delenv$|chdir$).*", "mocker|monkeypatch", "tests")


def test_nothing_is_unpickled() -> None:
    """What a worker sends comes in as bytes and closed models; a connection's `recv()` would unpickle it."""
    words = "pickle|marshal|shelve|dill"
    assert not found(imports, rf"({words})(\..*)?", words, *CODE)
    bare = [
        where(path, node)
        for path in spelling("recv", *CODE)
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr == "recv" and not node.args and not node.keywords
    ]
    assert not bare


def test_no_test_can_skip() -> None:
    """The suite's conftest fails a skip when it happens; this refuses the words."""
    names = r"(pytest|unittest)\.(mark\.)?(skip|skipif|skipIf|skipUnless|SkipTest|importorskip|xfail)"
    assert not found(uses, names, "skip|Skip|xfail", "tests")
    assert not found(imports, names, "skip|Skip|xfail", "tests")


def test_the_linter_leaves_out_runs_alone() -> None:
    """A name without a slash would leave out every folder of that name, and `qualify/evidence` with it."""
    assert pyproject()["tool"]["ruff"]["extend-exclude"] == ["evidence/runs"]


def test_no_machine_and_no_registry_is_named() -> None:
    words = [word.encode() for word in (*MACHINE, *HOSTS)]
    named = {path: [word for data in [path.read_bytes()] for word in words if word in data] for path in files()}
    assert not {path.relative_to(ROOT): found for path, found in named.items() if found}


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


def test_no_vector_of_the_opencl_harness_is_wider_than_32_bytes() -> None:
    """LLVM 14 crashes over wider ones on CPUs that it takes for older ones than they are; every session has these."""
    text = (ROOT / "qualify/workers/devices/harness.cl").read_text()
    named = re.findall(rf"\bu?({'|'.join(WIDTHS)})(2|3|4|8|16)\b", text)
    moved = [(of, lanes) for lanes, of in re.findall(r"v(?:load|store)(\d+)\([^;]*?u?(\w+) \*\)", text)]
    assert named
    assert not [(of, lanes) for of, lanes in (*named, *moved) if WIDTHS[of.removeprefix("u")] * int(lanes) > 32]
