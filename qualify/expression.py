"""Closed integer expressions over a cell: parsed once, names checked, evaluated exactly, printed as C (R6.1).

The language is a small subset of Python's: decimal integers, names, `+ - * // %`, one comparison at a time,
`and or not`, and four functions. Every intermediate fits 63 bits, so a printed C expression gives the same integers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

MAX_LENGTH = 256  # Characters; the longest expression of a real contract so far has 60.
MAX_DEPTH = 32  # Nested operations: keeps recursion far from Python's limit.
MAX_MAGNITUDE = (1 << 63) - 1  # Fits int64, so C's arithmetic never overflows where ours does not.

Kind = Literal["number", "condition"]

ALLOWED = (
    "integers, names of the cell, + - * // %, one comparison, and, or, not, "
    "ceil_div(a, b), round_up(a, b), min(a, b), max(a, b)"
)


class ExpressionError(ValueError):
    """An expression that is not in the language or has no value; `column` counts from 1."""

    def __init__(self, text: str, column: int, problem: str, allowed: str = ALLOWED) -> None:
        shown = text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH] + "..."
        super().__init__(f"{problem} in column {column} of {shown!r}; allowed: {allowed}")
        self.text, self.column, self.problem, self.allowed = text, column, problem, allowed


@dataclass(frozen=True)
class _Operation:
    """One row of the language: operands' kind, result's kind, meaning, C text with one `{}` an operand."""

    takes: Kind
    gives: Kind
    compute: Callable[..., int]
    c: str


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


_BINARY: dict[type[ast.AST], _Operation] = {
    ast.Add: _Operation("number", "number", lambda a, b: a + b, "({} + {})"),
    ast.Sub: _Operation("number", "number", lambda a, b: a - b, "({} - {})"),
    ast.Mult: _Operation("number", "number", lambda a, b: a * b, "({} * {})"),
    ast.FloorDiv: _Operation("number", "number", lambda a, b: a // b, "qualify_floor_div({}, {})"),
    ast.Mod: _Operation("number", "number", lambda a, b: a % b, "qualify_floor_mod({}, {})"),
    ast.Eq: _Operation("number", "condition", lambda a, b: a == b, "({} == {})"),
    ast.NotEq: _Operation("number", "condition", lambda a, b: a != b, "({} != {})"),
    ast.Lt: _Operation("number", "condition", lambda a, b: a < b, "({} < {})"),
    ast.LtE: _Operation("number", "condition", lambda a, b: a <= b, "({} <= {})"),
    ast.Gt: _Operation("number", "condition", lambda a, b: a > b, "({} > {})"),
    ast.GtE: _Operation("number", "condition", lambda a, b: a >= b, "({} >= {})"),
    ast.And: _Operation("condition", "condition", lambda a, b: a and b, "({} && {})"),
    ast.Or: _Operation("condition", "condition", lambda a, b: a or b, "({} || {})"),
}
_UNARY: dict[type[ast.AST], _Operation] = {
    ast.USub: _Operation("number", "number", lambda a: -a, "(-{})"),
    ast.Not: _Operation("condition", "condition", lambda a: not a, "(!{})"),
}
_FUNCTIONS: dict[str, _Operation] = {
    "ceil_div": _Operation("number", "number", _ceil_div, "qualify_ceil_div({}, {})"),
    "round_up": _Operation("number", "number", lambda a, b: _ceil_div(a, b) * b, "qualify_round_up({}, {})"),
    "min": _Operation("number", "number", min, "qualify_min({}, {})"),
    "max": _Operation("number", "number", max, "qualify_max({}, {})"),
}

#: Plain words for what people try; anything else is refused under Python's own name for it.
_REFUSED: dict[type[ast.AST], str] = {
    ast.Pow: "a power",
    ast.LShift: "a shift",
    ast.RShift: "a shift",
    ast.Div: "an inexact division",
    ast.Compare: "a chain of comparisons",
    ast.Constant: "a constant that is no integer",
    ast.IfExp: "a choice",
}

#: What the C text calls: Python's floor division where C truncates. `long long` has at least 64 bits.
C_PRELUDE = """\
static long long qualify_floor_div(long long a, long long b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static long long qualify_floor_mod(long long a, long long b) { return a % b + (a % b != 0 && (a < 0) != (b < 0)) * b; }
static long long qualify_ceil_div(long long a, long long b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }
static long long qualify_round_up(long long a, long long b) { return qualify_ceil_div(a, b) * b; }
static long long qualify_min(long long a, long long b) { return a < b ? a : b; }
static long long qualify_max(long long a, long long b) { return a > b ? a : b; }
"""


@dataclass(frozen=True)
class _Node:
    """A checked part of an expression. An operation has operands, a leaf has a name or a value."""

    column: int
    operation: _Operation | None = None
    operands: tuple[_Node, ...] = ()
    name: str | None = None
    value: int = 0

    @property
    def gives(self) -> Kind:
        return self.operation.gives if self.operation else "number"


@dataclass(frozen=True)
class Expression:
    """A checked expression. It can be evaluated for any cell that has its names."""

    text: str
    root: _Node

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value; a condition gives 0 or 1. Raises ExpressionError beyond 63 bits and for a division by zero."""
        return _evaluate(self.text, self.root, values)

    def c(self) -> str:
        """C text of the same value over `long long` variables of the cell's names, after C_PRELUDE."""
        return _c(self.root)


def parse(text: str, names: Collection[str], wants: Kind = "number") -> Expression:
    """The expression that `text` spells over `names`. Raises ExpressionError with the column of what is not allowed."""
    _check_spelling(text)
    indent = len(text) - len(text.lstrip(" "))
    try:
        tree = ast.parse(text.strip(" "), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        offset = getattr(error, "offset", None) or len(text) + 1  # Python names no place for an unexpected end.
        raise ExpressionError(text, min(indent + offset, len(text) + 1), "cannot be read") from error
    root = _Builder(text, names, indent).build(tree, wants, 1)
    return Expression(text, root)


#: Characters outside the language, and literals that are not decimal integers (0x10, 1e5, 1_000, 10j).
_STRANGE = re.compile(r"[^A-Za-z0-9_ ()+\-*/%<>=!,]|(?<![A-Za-z0-9_])[0-9]+[A-Za-z_]")


def _check_spelling(text: str) -> None:
    """Refuse before Python's parser sees it whatever no expression of ours can hold."""
    if not text.strip(" "):
        raise ExpressionError(text, 1, "nothing")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(text, MAX_LENGTH + 1, f"more than {MAX_LENGTH} characters")
    strange = _STRANGE.search(text)
    if strange:
        raise ExpressionError(text, strange.start() + 1, f"{strange.group()!r}")


class _Builder:
    """Python's tree to ours, refusing with a column what the table of operations does not hold."""

    def __init__(self, text: str, names: Collection[str], indent: int) -> None:
        self.text, self.names, self.indent = text, names, indent

    def build(self, tree: ast.expr, wants: Kind, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise self.error(tree, f"more than {MAX_DEPTH} nested operations")
        node = self._leaf(tree) or self._operation(tree, depth)
        if node.gives != wants:
            raise self.error(tree, f"a {node.gives} where a {wants} is needed")
        return node

    def error(self, tree: ast.expr, problem: str, allowed: str = ALLOWED) -> ExpressionError:
        return ExpressionError(self.text, self._column(tree), problem, allowed)

    def _column(self, tree: ast.expr) -> int:
        """Where a tree is read: at the operator between two operands, else at its first character."""
        match tree:
            case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right, *_]):
                start, end = self.indent + (left.end_col_offset or 0), self.indent + right.col_offset
                between = self.text[start:end]
                return start + len(between) - len(between.lstrip(" )")) + 1
        return self.indent + tree.col_offset + 1

    def _leaf(self, tree: ast.expr) -> _Node | None:
        match tree:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                if value > MAX_MAGNITUDE:
                    raise self.error(tree, "an integer beyond 63 bits")
                return _Node(self._column(tree), value=value)
            case ast.Name(id=name) if name in self.names:
                return _Node(self._column(tree), name=name)
            case ast.Name(id=name):
                known = ", ".join(sorted(self.names)) or "none"
                raise self.error(tree, f"unknown name {name}", f"the names {known}")
        return None

    def _operation(self, tree: ast.expr, depth: int) -> _Node:
        operation, operands = self._row(tree)
        if operation is None:
            raise self.error(tree, _REFUSED.get(type(tree), f"{type(tree).__name__}, which is no operation here"))
        built = tuple(self.build(operand, operation.takes, depth + 1) for operand in operands)
        return _Node(self._column(tree), operation, built)

    def _row(self, tree: ast.expr) -> tuple[_Operation | None, list[ast.expr]]:
        """The operation of a tree and its operands; no operation if the language has none such."""
        match tree:
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._known(tree, _BINARY.get(type(op)), _REFUSED.get(type(op))), [left, right]
            case ast.BoolOp(op=op, values=[left, right]):
                return _BINARY[type(op)], [left, right]
            case ast.BoolOp(op=op, values=[*firsts, last]):
                return _BINARY[type(op)], [ast.copy_location(ast.BoolOp(op, firsts), tree), last]
            case ast.UnaryOp(op=op, operand=operand):
                return self._known(tree, _UNARY.get(type(op)), _REFUSED.get(type(op))), [operand]
            case ast.Call(func=ast.Name(id=name), args=[_, _] as operands, keywords=[]):
                return self._known(tree, _FUNCTIONS.get(name), f"a call of {name}"), operands
            case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
                raise self.error(tree, f"{name} with other than two operands")
        return None, []

    def _known(self, tree: ast.expr, operation: _Operation | None, what: str | None) -> _Operation:
        if operation is None:
            raise self.error(tree, what or "an operator that is not one of these")
        return operation


def _evaluate(text: str, node: _Node, values: Mapping[str, int]) -> int:
    if node.operation is None:
        value = node.value if node.name is None else values[node.name]
    elif node.operation in (_BINARY[ast.And], _BINARY[ast.Or]):
        # Only as far as needed, as in Python and C: `n != 0 and m % n == 0` has a value for n = 0.
        left = _evaluate(text, node.operands[0], values)
        decided = bool(left) == (node.operation is _BINARY[ast.Or])
        value = left if decided else _evaluate(text, node.operands[1], values)
    else:
        operands = [_evaluate(text, operand, values) for operand in node.operands]
        try:
            value = int(node.operation.compute(*operands))
        except ZeroDivisionError as error:
            raise ExpressionError(text, node.column, "a division by zero", "divisors other than 0") from error
    if not -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
        raise ExpressionError(text, node.column, "a value beyond 63 bits", "values of at most 63 bits")
    return value


def _c(node: _Node) -> str:
    if node.operation is None:
        return node.name if node.name is not None else f"{node.value}LL"
    return node.operation.c.format(*map(_c, node.operands))
