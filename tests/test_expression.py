"""Expressions equal Python's on the closed subset, C's after printing, and refuse the rest with its column."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.expression import (
    C_PRELUDE,
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_MAGNITUDE,
    ExpressionError,
    Kind,
    parse,
)
from tests.conftest import examples

NAMES = ("rows", "cols", "k")
_PYTHON = {"ceil_div": lambda a, b: -(-a // b), "round_up": lambda a, b: -(-a // b) * b, "min": min, "max": max}


def _number(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(parts, st.sampled_from(["+", "-", "*", "//", "%"]), parts).map(lambda t: f"({' '.join(t)})")
    call = st.tuples(st.sampled_from(sorted(_PYTHON)), parts, parts).map(lambda t: f"{t[0]}({t[1]}, {t[2]})")
    return binary | call | parts.map(lambda text: f"-{text}")


numbers = st.recursive(st.integers(0, 1000).map(str) | st.sampled_from(NAMES), _number, max_leaves=6)
comparisons = st.tuples(numbers, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), numbers).map(" ".join)
conditions = st.recursive(
    comparisons,
    lambda parts: (
        st.tuples(parts, st.sampled_from(["and", "or"]), parts).map(lambda t: f"({' '.join(t)})")
        | parts.map(lambda text: f"(not ({text}))")
    ),
    max_leaves=3,
)
cells = st.fixed_dictionaries({name: st.integers(-5000, 5000) for name in NAMES})


def agrees_with_python(text: str, cell: dict[str, int], wants: Kind) -> None:
    found = parse(text, NAMES, wants)
    try:
        got: int | str = found.evaluate(cell)
    except ExpressionError as error:
        got = error.problem
    try:
        want: int | str = int(eval(text, {"__builtins__": {}}, {**_PYTHON, **cell}))
    except ZeroDivisionError:
        want = "a division by zero"
    # An intermediate may leave 63 bits where the whole does not, or before a division by zero is reached.
    assert got in (want, "a value beyond 63 bits")


@given(numbers.filter(lambda text: len(text) <= MAX_LENGTH), cells)
@settings(max_examples=examples(150), deadline=None)
def test_numbers_equal_python(text: str, cell: dict[str, int]) -> None:
    agrees_with_python(text, cell, "number")


@given(conditions.filter(lambda text: len(text) <= MAX_LENGTH), cells)
@settings(max_examples=examples(100), deadline=None)
def test_conditions_equal_python(text: str, cell: dict[str, int]) -> None:
    agrees_with_python(text, cell, "condition")


@given(st.text(max_size=40) | st.text(alphabet="rowsc()+-*/% <>=!,&|^~.[]'\"0123456789eEjx", max_size=24))
@settings(max_examples=examples(200), deadline=None)
def test_any_text_gives_an_expression_or_a_column(text: str) -> None:
    try:
        column = parse(text, NAMES).root.column
    except ExpressionError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("rows ** 2", 6, "a power"),
        ("(rows) << cols", 8, "a shift"),
        ("rows / 2", 6, "an inexact division"),
        ("rows | 1", 6, "'|'"),
        ("rows.bit_length()", 5, "'.'"),
        ("'a' * 10", 1, '"\'"'),
        ("1 + 0x10", 5, "'0x'"),
        ("2 * 1e9", 5, "'1e'"),
        ("1 + True", 5, "a constant that is no integer"),
        ("1 + height", 5, "unknown name height"),
        ("abs(rows, 1)", 1, "a call of abs"),
        ("min(rows)", 1, "min with other than two operands"),
        ("min(*rows, 2)", 5, "Starred"),
        ("rows if cols else k", 1, "a choice"),
        ("rows == 1", 6, "a condition where a number is needed"),
        ("rows + (cols < 3)", 14, "a condition where a number is needed"),
        ("rows +", 7, "cannot be read"),
        ("  rows @ 2", 8, "'@'"),
        ("", 1, "nothing"),
        ("rows\n+ 1", 5, "'\\n'"),
        ("9223372036854775808", 1, "an integer beyond 63 bits"),
        ("1+" * 200 + "1", MAX_LENGTH + 1, "characters"),
        ("-" * (MAX_DEPTH + 1) + "1", MAX_DEPTH + 1, "nested operations"),
    ],
)
def test_what_is_not_in_the_language_is_refused_with_its_column(text: str, column: int, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text, NAMES)
    assert problem in str(caught.value)
    assert caught.value.column == column, str(caught.value)


@pytest.mark.parametrize("text", ["rows and cols == 1", "rows", "0 < rows < 4", "not rows"])
def test_a_condition_is_made_of_comparisons(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text, NAMES, "condition")


def test_the_second_half_of_a_condition_is_looked_at_only_if_needed() -> None:
    guarded = parse("rows != 0 and cols % rows == 0", NAMES, "condition")
    assert guarded.evaluate({"rows": 0, "cols": 4}) == 0
    assert guarded.evaluate({"rows": 2, "cols": 4}) == 1


def test_an_intermediate_beyond_63_bits_is_refused_where_the_result_would_fit() -> None:
    edge = {"rows": MAX_MAGNITUDE, "cols": 1, "k": 0}
    assert parse("rows - cols + cols", NAMES).evaluate(edge) == MAX_MAGNITUDE
    with pytest.raises(ExpressionError, match="beyond 63 bits in column 6"):
        parse("rows + cols - cols", NAMES).evaluate(edge)


#: Any C compiler would do; PoCL's is the one that every machine with this suite has. Its `long` has 64 bits.
RUN_C = """
import sys
import numpy, pyopencl as cl
context = cl.Context([next(p for p in cl.get_platforms() if "Portable" in p.name).get_devices()[0]])
queue, values = cl.CommandQueue(context), numpy.zeros(int(sys.argv[1]), numpy.int64)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, values.nbytes)
cl.Kernel(cl.Program(context, sys.stdin.read()).build(), "values")(queue, (1,), (1,), buffer)
cl.enqueue_copy(queue, values, buffer)
print(*values)
"""


def run_c(source: str, values: int, folder: Path) -> list[int]:
    """What a kernel `values` writes into its only argument."""
    private = {"HOME": folder, "XDG_CACHE_HOME": folder, "POCL_CACHE_DIR": folder, "TMPDIR": folder}
    switches = {"POCL_KERNEL_CACHE": "0", "PYOPENCL_NO_CACHE": "1"}
    environment = {"PATH": os.environ["PATH"], **{name: str(path) for name, path in private.items()}, **switches}
    command = [sys.executable, "-c", RUN_C, str(values)]
    done = subprocess.run(command, input=source, env=environment, capture_output=True, text=True, check=True)
    return [int(value) for value in done.stdout.split()]


def test_printed_c_gives_the_same_integers(tmp_path: Path) -> None:
    texts = (
        "rows // cols",
        "rows % cols",
        "ceil_div(rows, cols)",
        "round_up(rows, cols)",
        "-min(rows, cols) * max(k, 7) - 3",
    )
    cells = [{"rows": rows, "cols": cols, "k": 11} for rows in (-7, -6, 0, 6, 7) for cols in (-3, -1, 1, 3)]
    lines: list[str] = []
    want: list[int] = []
    for text in texts:
        found = parse(text, NAMES)
        for cell in cells:
            declared = " ".join(f"long long {name} = {value};" for name, value in cell.items())
            lines.append(f"{{ {declared} out[{len(want)}] = {found.c()}; }}")
            want.append(found.evaluate(cell))
    condition = parse("not (rows < 3 and cols == 2) or k >= 4", NAMES, "condition")
    lines.append(f"{{ long long rows = 1, cols = 2, k = 3; out[{len(want)}] = {condition.c()}; }}")
    want.append(0)
    source = C_PRELUDE + "__kernel void values(__global long long *out) {\n" + "\n".join(lines) + "}\n"
    source = source.replace("long long", "long").replace("LL", "L")
    assert run_c(source, len(want), tmp_path) == want
