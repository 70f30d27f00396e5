"""Gate memcheck where rows lie apart: a buffer ends where its last row does, and what is between rows is nobody's."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gates import GATES
from gates.memcheck import Launched, MemcheckFacts, ToolRun
from qualify import program
from qualify.contract import Argument, Fill, Kernel, ReferenceSource, Uniform, Variant
from qualify.fill import generate, recipe
from qualify.gate import Measurement
from qualify.judgement import decide, rules_of
from qualify.plan import Node
from qualify.sanitizers import OCLGRIND, PLANTED, TOOLS
from qualify.steps import Read, Step
from qualify.subject import Subject
from qualify.verdict import Verdict
from tests.gates.beds import SEED, Bed, bed, cuda, opencl
from tests.gates.build import check, matrices, not_held, subject

ROWS, COLS = 13, 7
APART: tuple[Variant, ...] = ("ordinary", "strided")
CLAIMS = ("bounds", "initialised", "races", "barriers")

# Judgement -----------------------------------------------------------------------------------------------------------


def clean(about: Subject, variants: Sequence[Variant]) -> MemcheckFacts:
    """Every tool of the runtime, with nothing to say of these variants."""
    oclgrind = about.domain.runtime == "opencl"
    launches = tuple(Launched(variant=each, symbol="add", returned=1000 if oclgrind else None) for each in variants)
    whole: dict[str, Any] = {"version": "1", "ended": "complete", "exit_code": 0, "found": 0, "findings": ()}
    whole |= {"unexplained": 0, "strange": (), "launches": launches}
    whole |= dict.fromkeys(("errors", "warnings"), None if oclgrind else 0)
    whole |= {"planted": (tuple(PLANTED), tuple(PLANTED)) if oclgrind else ()}
    return MemcheckFacts(tools=tuple(ToolRun(tool=tool, **whole) for tool in TOOLS[about.domain.runtime]))


def by_rule(number: int, about: Subject, watched: Sequence[Variant]) -> Verdict:
    """What a rule says of clean tools that watched these variants."""
    gate = GATES["memcheck"]
    facts = clean(about, watched).model_dump(mode="json")
    whole: dict[str, Any] = {"settings": {"timeout_s": 300}, "needs": (), "cost_s": "1", "source_blake3": "0" * 64}
    node = Node(gate="memcheck", rule=number, runs_on=gate.runs_on, **whole)
    measured = Measurement(gate="memcheck", rule=number, state="measured", facts=facts)
    return decide(node, about, measured, {}, rules_of(gate))


@pytest.mark.parametrize("toolkit", ["pocl-3.0", "cuda-13.2"])
def test_rule_2_wants_every_variant_and_rule_1_all_but_rows_apart(toolkit: str) -> None:
    about = subject(toolkit, variants=APART)
    assert not_held(by_rule(2, about, APART)) == {}
    assert not_held(by_rule(1, about, APART[:1])) == {}
    unknown = dict.fromkeys(("launches", *CLAIMS))
    assert not_held(by_rule(2, about, APART[:1])) == unknown
    assert not_held(by_rule(2, about, APART[::-1])) == unknown
    assert not_held(by_rule(1, about, APART)) == unknown


# Oclgrind ------------------------------------------------------------------------------------------------------------

HEAD = (
    "__global float *y, __global const float *a, __global const float *b, "
    "int rows, int cols, int y_pitch, int a_pitch, int b_pitch"
)
CUDA_HEAD = HEAD.replace("__global ", "")
#: One work-item an element, without a remainder: beside a quotient it becomes what Oclgrind does not know.
WHERE = (
    "int r = get_global_id(1), at = r * y_pitch + i, last = r == rows - 1; "
    "int first_of_all = !r && !i, last_of_all = last && i == cols - 1, tail = !last && i == cols - 1, head = r && !i; "
)
HONEST = "y[at] = a[at] + b[at];"
#: What is right where rows follow each other, and what closes it where they lie apart.
DENSE = {
    "reads a row as if it followed the last": ("y[at] = a[r * cols + i] + b[at];", {"initialised"}),
    "takes rows and gaps for one row": (
        "for (int j = r * cols + i; j < rows * y_pitch; j += rows * cols) y[j] = a[j] + b[j];",
        {"bounds", "initialised"},
    ),
    "writes gaps, and one behind the last row": (
        f"{HONEST} if (i == cols - 1) for (int j = 1; j < y_pitch - cols + 1; j++) y[at + j] = 0;",
        {"bounds"},
    ),
    "reads one past a row": ("y[at] = a[at + (y_pitch > cols && tail)] + b[at];", {"initialised"}),
    "reads one before a row": ("y[at] = a[at - (y_pitch > cols && head)] + b[at];", {"initialised"}),
}
#: What leaves the buffer, however rows lie.
OUTSIDE = {
    "reads one past the last row's end": ("y[at] = a[at + last_of_all] + b[at];", {"bounds", "initialised"}),
    "writes one past the last row's end": ("y[at + last_of_all] = a[at] + b[at];", {"bounds"}),
    "reads one before the first row": ("y[at] = a[at - first_of_all] + b[at];", {"bounds", "initialised"}),
    "writes one before the first row": ("y[at - first_of_all] = a[at] + b[at];", {"bounds"}),
}


def about(made: Bed, text: bytes, variants: tuple[Variant, ...], passed: tuple[Argument, ...] = ()) -> Subject:
    """A subject over matrices, a work-item an element."""
    launches = (Kernel(symbol="add", grid=(1, ROWS, 1), block=(COLS, 1, 1)),)
    return made.subject(text, text, launches=launches, passed=passed or matrices(ROWS, COLS), variants=variants)


def interpret(pocl: Bed, body: str, variants: tuple[Variant, ...]) -> Verdict:
    return pocl.judge("memcheck", about(pocl, opencl(WHERE + body, HEAD), variants)).verdict


def test_an_honest_kernel_passes_where_rows_lie_apart(pocl: Bed) -> None:
    found = interpret(pocl, HONEST, ("ordinary", "exceptional", "strided"))
    assert not_held(found) == {}
    assert check(found, "launches").got == "3 of 3 under every tool"


@pytest.mark.parametrize("what", DENSE)
def test_what_rows_in_a_row_hide_is_seen_where_they_lie_apart(what: str, pocl: Bed) -> None:
    body, closed = DENSE[what]
    assert not_held(interpret(pocl, body, ("ordinary",))) == {}
    assert not_held(interpret(pocl, body, APART)) == dict.fromkeys(closed, False)


@pytest.mark.parametrize("what", OUTSIDE)
def test_one_element_outside_rows_that_lie_apart_is_seen(what: str, pocl: Bed) -> None:
    body, closed = OUTSIDE[what]
    for variant in APART:
        found = interpret(pocl, body, (variant,))
        assert not_held(found) == dict.fromkeys(closed, False)
        assert (check(found, "bounds").got or "").startswith(f"Invalid {what.partition('s ')[0]} of size 4")


def test_a_write_between_rows_is_for_digest_to_see(pocl: Bed) -> None:
    body = f"{HONEST} if (y_pitch > cols && tail) y[at + 1] = 0;"
    assert not_held(interpret(pocl, body, APART)) == {}
    seen = pocl.judge("digest", about(pocl, opencl(WHERE + body, HEAD), APART)).verdict
    assert check(seen, "zones").holds is False


def read_back(made: Bed, tool: str, rows: int, cols: int) -> tuple[str, str]:
    """An input of letters whose rows lie apart: as a sanitizer's session reads it, which is text, and as it should."""
    letters = Fill(uniform=Uniform(low="65", high="91"))
    passed = tuple(
        each.model_copy(update={"dtype": "uint8", "fill": letters}) if each.is_buffer else each
        for each in matrices(rows, cols)
    )
    text = opencl("", HEAD.replace("float", "uchar")) if tool == OCLGRIND else cuda("", CUDA_HEAD)
    watched = about(made, text, APART, passed)
    made.rig.supply(made.modules, ReferenceSource(path="none.py", code=b"", function="none"), SEED)
    seed = "1" * 16
    fills = program.values(watched, "strided", seed, 1)
    steps: tuple[Step, ...] = (program.arena_of_each(watched, seed), *fills, Read(buffer="a.1"))
    found = made.rig.bench(watched, {}).sanitized(watched, tool, steps, 60)
    assert found.loss is None, found
    return "".join(found.told), generate(recipe(passed[1], "strided", seed), rows * cols).decode()


SIZES = [(13, 7), (3, 5000), (50, 1)]


@pytest.mark.parametrize(("rows", "cols"), SIZES)
def test_elements_that_lie_apart_are_those_of_a_row(rows: int, cols: int, pocl: Bed) -> None:
    found, wanted = read_back(pocl, OCLGRIND, rows, cols)
    assert found == wanted


# compute-sanitizer ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def board() -> Iterator[Bed]:
    """The board of this machine under the toolkit that is here."""
    with bed("cuda") as made:
        yield made


def watch(board: Bed, body: str, variants: tuple[Variant, ...]) -> Verdict:
    where = WHERE.replace("get_global_id(1)", "blockIdx.y")
    text = cuda(where + body, CUDA_HEAD)
    return board.judge("memcheck", about(board, text, variants), timeout_s=60).verdict


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "cols"), SIZES)
def test_elements_that_lie_apart_on_a_board_are_those_of_a_row(rows: int, cols: int, board: Bed) -> None:
    found, wanted = read_back(board, "memcheck", rows, cols)
    assert found == wanted


@pytest.mark.gpu
def test_under_four_tools_an_honest_kernel_passes_where_rows_lie_apart(board: Bed) -> None:
    found = watch(board, HONEST, ("ordinary", "exceptional", "strided"))
    assert not_held(found) == {}, found


@pytest.mark.gpu
@pytest.mark.parametrize("what", DENSE)
def test_the_tools_of_a_board_see_what_rows_in_a_row_hide(what: str, board: Bed) -> None:
    body, closed = DENSE[what]
    found = watch(board, body, APART)
    assert {check(found, claim).holds for claim in closed} == {False}, found


@pytest.mark.gpu
@pytest.mark.parametrize("what", OUTSIDE)
def test_the_tools_of_a_board_see_one_element_outside(what: str, board: Bed) -> None:
    found = watch(board, OUTSIDE[what][0], ("strided",))
    assert check(found, "bounds").holds is False, found
