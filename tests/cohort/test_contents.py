"""A malformed cohort is refused whole, at its line, with the fix; the nearest well-formed one is read."""

import os
from pathlib import Path

import pytest

from qualify import cohort
from qualify.cohort.contents import DEFAULT_FILL
from qualify.contract import PointerMember, PointerTable, ScalarMember, Stride, Struct, TensorMap
from qualify.domain import Limits
from qualify.plan import LeftOut
from qualify.strides import under
from tests.cohort.bench import COHORT, FILES, OPENCL, changed_lines, edited, refusal, select, subject, write

REPOSITORY = Path(__file__).parents[2]


def test_cells_arguments_and_files_are_read(tmp_path: Path) -> None:
    workspace = write(tmp_path)
    loaded = cohort.load(workspace, "scale")
    assert loaded.cell_ids == ("big", "small")
    assert loaded.route_names == ("plain", "fast")
    assert [cell.timed for cell in loaded.cells] == [True, False]
    assert loaded.arguments["small"][0].shape == (1, 3)
    assert [item.value for item in loaded.arguments["big"]] == [None, None, "8"]
    assert loaded.reference.code == FILES["scale/reference.py"].encode()
    select(workspace)
    assert set(loaded.inputs) == {"cohorts/scale/cohort.yaml", "cohorts/scale/reference.py"}


def test_a_float_input_without_a_fill_gets_one_whose_mean_is_not_zero(tmp_path: Path) -> None:
    found = {item.name: item for item in subject(write(tmp_path), "plain").arguments}
    assert found["x"].fill == DEFAULT_FILL
    assert DEFAULT_FILL.normal is not None
    assert DEFAULT_FILL.normal.mean != "0"
    assert found["y"].fill is None


def test_exceptional_values_go_where_a_float_goes_in(tmp_path: Path) -> None:
    assert subject(write(tmp_path), "plain").variants == ("ordinary", "exceptional")
    integers = COHORT.replace("float32", "int32")
    assert subject(write(tmp_path, scale_cohort_yaml=integers), "plain").variants == ("ordinary",)


def test_scratch_in_bytes_and_exact_scalars(tmp_path: Path) -> None:
    more = (
        "  - {name: s, kind: scalar, dtype: float32, value: 1e-5}\n"
        "  - {name: work, kind: scratch, size: 4 * rows, init: zero-at-load}\ncells:"
    )
    found = subject(write(tmp_path, scale_cohort_yaml=edited("cells:", more)), "plain").arguments
    assert (found[3].value, found[4].dtype, found[4].shape, found[4].init) == ("1e-5", "uint8", (32,), "zero-at-load")


PITCHES = """\
  - {name: y_pitch, kind: scalar, dtype: int64, stride: {of: y, axis: 0}}
  - {name: x_pitch, kind: scalar, dtype: int32, stride: {of: x, axis: 0, multiple: "4 - 3 * min(1, cols % 4)"}}
cells:"""


def test_a_scalar_tells_a_stride_and_makes_a_variant(tmp_path: Path) -> None:
    workspace = write(tmp_path, scale_cohort_yaml=edited("cells:", PITCHES))
    for cell, cols, padded, multiple in (("big", 4, ("5", "12"), 4), ("small", 3, ("5", "5"), 1)):
        found = subject(workspace, "plain", cell)
        assert found.variants == ("ordinary", "exceptional", "strided")
        assert [item.value for item in found.arguments[3:]] == [str(cols)] * 2
        assert found.arguments[4].stride == Stride(of="x", axis=0, multiple=multiple)
        assert tuple(item.value for item in under(found.arguments, "strided")[3:]) == padded
    integers = edited("cells:", PITCHES).replace("float32", "int32")
    assert subject(write(tmp_path, scale_cohort_yaml=integers), "plain").variants == ("ordinary", "strided")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("of: y", "of: z", "z"),
        ("of: y", "of: rows", "rows"),
        ("{of: y, axis: 0}", "{of: y, axis: 1}", "1"),
        ("{of: y, axis: 0}", "{of: y, axis: 0, multiple: 8}", "4 for cell big"),
        ("{of: y, axis: 0}", "{of: y, axis: 0, multiple: 0}", "0 for cell big"),
        ("{of: y, axis: 0}", "{of: y, axis: 0}, value: 4", "both"),
        (", stride: {of: y, axis: 0}", "", "neither"),
        ("cells:", "  - {name: t, kind: pointers, to: [y]}\ncells:", "y, which a tensor map or a table describes"),
        ("dtype: int64", "dtype: float32", "5 as float32 for cell big"),
        ("dtype: int64", "dtype: int8", "301 as int8 for cell big"),
    ],
)
def test_a_stride_that_no_buffer_has_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in PITCHES
    text = edited("cells:", PITCHES.replace(old, new))
    error = refusal(
        write(tmp_path, scale_cohort_yaml=text.replace("cols: 4}", "cols: 300}") if "301" in says else text)
    )
    assert says in str(error.got)


STRUCT = """\
  - name: p
    kind: struct
    type: Params
    size: 24
    align: 8
    members:
      - {name: rows, offset: 0, dtype: int32, value: rows}
      - {name: eps, offset: 4, dtype: float32, value: 1e-5}
      - {name: x, offset: 8, to: x}
      - {name: half, offset: 16, dtype: "{dtype}", value: 1/2}
cells:"""


def test_a_struct_is_its_members_at_their_offsets(tmp_path: Path) -> None:
    made = subject(write(tmp_path, scale_cohort_yaml=edited("cells:", STRUCT)), "plain").arguments
    (found,) = [item for item in made if item.kind == "struct"]
    assert (found.dtype, found.shape, found.align) == ("uint8", (24,), 8)
    assert found.holds == Struct(
        type_name="Params",
        members=(
            ScalarMember(name="rows", offset_bytes=0, dtype="int32", value="8"),
            ScalarMember(name="eps", offset_bytes=4, dtype="float32", value="1e-5"),
            PointerMember(name="x", offset_bytes=8, to="x"),
            ScalarMember(name="half", offset_bytes=16, dtype="float32", value="1/2"),
        ),
    )
    assert [b'"holds"' in item.canonical() for item in made] == [False, False, False, True]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("offset: 4", "offset: 2", "p.eps: 4 bytes at 2 of 24"),
        ("offset: 4", "offset: 0", "p.eps: 4 bytes at 0 of 24"),
        ("offset: 16", "offset: 24", "p.half: 4 bytes at 24 of 24"),
        ("to: x", "to: z", "p.x points to z, which is no buffer"),
        ("to: x", "to: rows", "p.x points to rows, which is no buffer"),
        ("align: 8", "align: 4", "p.x: 8 bytes at 8 of 24 that lie at multiples of 4"),
        ("size: 24", "size: 28", "p: 28 bytes are no multiple of 8"),
        ("name: eps", "name: rows", "rows again"),
        ("    type: Params\n", "", "nothing"),
        ("value: rows", "value: height", "height"),
        ("value: rows", "value: 3000000000", "3000000000 for cell big"),
        (", to: x", ", to: x, value: 1", "value"),
    ],
)
def test_a_struct_that_no_compiler_lays_out_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in STRUCT
    text = edited("cells:", STRUCT.replace(old, new))
    error = refusal(write(tmp_path, scale_cohort_yaml=text))
    assert says in str(error.got)
    if says == "value":
        assert error.expected == "one of dtype, name, offset, to, value"


TAPS = "  - {name: taps, kind: constant, dtype: float32, shape: [16]}\ncells:"


def test_a_constant_is_filled_like_an_input_and_named_under_state(tmp_path: Path) -> None:
    text = edited("cells:", TAPS).replace("bits: own", "bits: own\nstate: [taps]")
    found = subject(write(tmp_path, scale_cohort_yaml=text), "plain").arguments[-1]
    assert (found.kind, found.shape, found.fill) == ("constant", (16,), DEFAULT_FILL)
    error = refusal(write(tmp_path, scale_cohort_yaml=edited("cells:", TAPS)))
    assert (error.expected, error.got) == ("the arguments that are constants (taps)", "none")


LARGE = COHORT.replace("timed: false}", "timed: false, where_memory_allows: [opencl]}")


@pytest.mark.parametrize(
    ("text", "memory_bytes", "reason"),
    [
        (LARGE, 24 << 10, None),
        (LARGE, 12 << 10, "needs 16384 bytes of memory, and 12288 are there"),
        (LARGE, None, "needs 16384 bytes of memory, and how much is there is unknown"),
        (LARGE.replace("opencl", "cuda"), 24 << 10, "is planned on cuda only"),
        (COHORT, 12, None),
    ],
)
def test_a_cell_that_memory_may_not_allow_is_left_out_on_record(
    tmp_path: Path, text: str, memory_bytes: int | None, reason: str | None
) -> None:
    found = cohort.load(write(tmp_path, scale_cohort_yaml=text), "scale")
    limits = Limits(source="test", memory_bytes=memory_bytes)
    selection = cohort.subjects(found, OPENCL, limits, "build 1")
    assert selection.left_out == (() if reason is None else (LeftOut(cell="small", reason=reason),))
    cells = {subject.cell.id for subject in selection.subjects}
    assert cells == ({"big", "small"} if reason is None else {"big"})
    assert not (cell_records(selection) & {"small"} if reason else set())


def cell_records(selection: cohort.Selection) -> set[str]:
    """The cells that have a subject or a route that falls back."""
    return {each.cell.id for each in selection.subjects} | {each.cell for each in selection.falls_back}


@pytest.mark.parametrize("asked", ["true", "[]", "[metal]", "cuda"])
def test_where_memory_allows_names_runtimes(tmp_path: Path, asked: str) -> None:
    error = refusal(write(tmp_path, scale_cohort_yaml=LARGE.replace("[opencl]", asked)))
    assert error.expected == "runtimes (cuda, opencl, simulated)"
    assert error.fix == "write where_memory_allows: [cuda]"


MAP = "  - {name: m, kind: tensormap, of: x, dims: [cols, rows], box: [4, rows], swizzle: 128}\ncells:"


def test_a_tensor_map_has_dense_strides_unless_it_says_so(tmp_path: Path) -> None:
    only = COHORT.replace("  - {id: small, dtype: float32, rows: 1, cols: 3, timed: false}\n", "")
    text = only.replace("[rows, cols]}\n  - {name: rows", "[rows, cols], align: 16}\n  - {name: rows")
    found = subject(write(tmp_path, scale_cohort_yaml=text.replace("cells:", MAP)), "plain").arguments[-1]
    assert (found.dtype, found.shape, found.align) == ("uint8", (128,), 64)
    dense = TensorMap(of="x", dims=(4, 8), strides_bytes=(16,), box=(4, 8), swizzle_bytes=128)
    assert found.holds == dense
    wide = MAP.replace("dims: [cols, rows]", "dims: [cols, rows // 2], strides: [2 * cols]")
    found = subject(write(tmp_path, scale_cohort_yaml=text.replace("cells:", wide)), "plain").arguments[-1]
    assert found.holds == dense.model_copy(update={"dims": (4, 4), "strides_bytes": (32,)})
    for old, new, says in (
        ("of: x", "of: rows", "m is a map of rows, which is no buffer"),
        ("dims: [cols, rows]", "dims: [cols, rows + 1]", "m: its last element ends at 144 of 128 bytes of x"),
        ("swizzle: 128", "swizzle: 96", "96"),
        ("box: [4, rows], ", "", "nothing"),
    ):
        broken = text.replace("cells:", MAP.replace(old, new))
        assert says in str(refusal(write(tmp_path, scale_cohort_yaml=broken)).got)


TABLE = "  - {name: t, kind: pointers, to: [x, y], count: rows, step: cols}\ncells:"


def test_pointers_are_a_buffer_of_addresses(tmp_path: Path) -> None:
    found = subject(write(tmp_path, scale_cohort_yaml=edited("cells:", TABLE)), "plain").arguments[-1]
    assert (found.dtype, found.shape) == ("uint64", (16,))
    assert found.holds == PointerTable(to=("x", "y"), count=8, step_bytes=16)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("step: cols", "step: cols + 1", "t: 8 addresses 20 bytes apart leave x for cell big"),
        ("to: [x, y]", "to: [x, rows]", "t points to rows, which is no buffer"),
        ("to: [x, y]", "to: [z]", "t points to z, which is no buffer"),
        ("to: [x, y], ", "", "nothing"),
        ("count: rows", "count: 0", "0 for cell big"),
        ("count: rows", "count: 1000000", "2000000 for cell big"),
        ("count: rows", "shape: [rows]", "shape of pointers t"),
    ],
)
def test_pointers_that_lead_nowhere_are_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in TABLE
    text = edited("cells:", TABLE.replace(old, new))
    assert says in str(refusal(write(tmp_path, scale_cohort_yaml=text)).got)


def fill(exceptional: str) -> str:
    return f"fill: {{uniform: {{low: 0, high: 9}}, exceptional: {exceptional}}}"


@pytest.mark.parametrize(
    ("old", "new", "expected", "fix"),
    [
        ("shape: [rows, cols]}\n  - {name: x", "shape: [rows, 0]}\n  - {name: x", "at least 1", "correct the formula"),
        ("cols: 3", "cols: 0", "at least 1", "correct the formula"),
        ("cols: 3", "cols: [3]", "an integer or a word", "write an integer"),
        ("cols: 3", "rowz: 3", "the integers of the first cell", "give every cell the same"),
        ("id: small", "id: big", "each name once", "rename"),
        ("id: small", "id: a/b", "a cell's name", "write id:"),
        ("timed: false", "timed: no", "true or false", "write true or false"),
        ("timed: false", "runtime: cuda", "a name that is free", "rename"),
        ("{id: small, dtype: float32", "{id: small, dtype: float31", "float16, bfloat16, ", "write one of these"),
        ("name: y, kind: output", "name: y, kind: tensormap", "box, dims, of", "remove dtype"),
        ("name: y, kind: output", "name: y, kind: outptu", "input, output", "write one of these"),
        ("kind: output,", "kind: output, value: 3,", "align, dtype, shape", "remove value:"),
        ("kind: output,", "kind: output, fill: {normal: {mean: 0, scale: 1}},", "align, dtype", "remove fill:"),
        (", shape: [rows, cols]}\n  - {name: x", "}\n  - {name: x", "shape of output y", "add shape:"),
        ("kind: input,", "kind: input, align: 3,", "x: align is a power of two", "write a power of two"),
        ("kind: input,", "kind: input, fill: {normal: {mean: 2e9, scale: 1}},", "x: fills reach", "write smaller"),
        ("kind: input,", "kind: input, fill: {uniform: {low: 1, high: 1}},", "values that differ", "write a scale"),
        ("kind: input,", "kind: input, fill: {},", "name exactly one of normal and uniform", "correct it"),
        ("kind: input,", f"kind: input, {fill('[huge]')},", "'nan', 'infinities', 'zeros'", "write one of"),
        ("kind: input,", f"kind: input, {fill('[]')},", "at least 1", "add what is missing"),
        ("input, dtype: \"{dtype}\"", f"input, dtype: int8, {fill('[nan]')}", "special values of int8", "name some"),
        ("value: rows", "value: rows * 2 ** 3", "integers, names of the cell", "correct column 10"),
        ("value: rows", "value: 0.5", "an integer for int32", "write an integer"),
        ("value: rows", "value: 2147483648", "a value of int32", "use a wider dtype"),
        ("value: rows", "value: rows // (cols - 4)", "divisors other than 0", "correct column 6"),
        ("shape: [rows, cols]}\n  - {name: x", "shape: [height]}\n  - {name: x", "the names cols, rows", "correct"),
        ("name: rows", "name: y", "each name once", "rename"),
        ("admits: \"cols % 2 == 0\"", "admits: cols", "integers, names", "correct column 1"),
        ("grid: [rows]", "grid: [rows.bits]", "integers, names", "correct column 5"),
        ("plain.k]", "\"{no}.k\"]", "placeholders {cols}", "correct the name"),
        ("plain.k]", "\"plain.k}\"]", "placeholders {cols}", "correct the name"),
        ("{memset: y}", "{memset: x}", "one of y", "name one of these"),
        ("block: [64]", "block: [64], arguments: [z]", "one of y, x, rows", "name one of these"),
        ("block: [64]", "blok: [64]", "one of arguments, block, byte, carve_out, cluster", "write block"),
        ("block: [64]", "block: []", "at least 1", "add what is missing"),
        ("operation: scale", "operation: scales", "the folder's name, scale", "write operation: scale"),
        ("plain: plain\n", "plain: none\n", "a route (plain, fast)", "name the fallback route"),
        ("block: [cols]}]}", "block: [cols]}], admits: 1 == 1}", "plain without admits", "remove admits"),
        ("bits: own\n", "bits: own\nstate: [counter]\n", "the arguments that are constants (none)", "name every"),
        ("reference.py:scale", "reference.py", "file.py:function", "write reference:"),
        ("reference.py:scale", "other.py:scale", "a regular file", "put it at cohorts/scale/other.py"),
        ("dispatcher_revision: 1", "dispatcher_revision: 0", "at least 1", "write a greater number"),
        ("  fast:", "  plain:", "each key once", "remove one of the two"),
        ("bits: own", "bits: &x own", "no anchor", "remove the anchor"),
    ],
)  # fmt: skip
def test_a_malformed_cohort_is_refused_at_its_line(tmp_path: Path, old: str, new: str, expected: str, fix: str) -> None:
    text = edited(old, new)
    error = refusal(write(tmp_path, scale_cohort_yaml=text))
    assert expected in str(error.expected)
    assert fix in error.fix
    file, at = error.where.split(":")
    assert file == "cohorts/scale/cohort.yaml"
    # A cell's fault shows at the argument that it breaks.
    assert int(at) in {*changed_lines(text), 4}


def test_an_alias_bomb_ends_at_its_first_anchor(tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a, *a, *a]\n" for n in range(30))
    error = refusal(write(tmp_path, scale_cohort_yaml=bomb))
    assert (error.where, error.got) == ("cohorts/scale/cohort.yaml:1", "the anchor &a")


def test_a_cohort_that_is_a_link_out_of_the_workspace_is_not_followed(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere")
    workspace = tmp_path / "workspace"
    (workspace / "cohorts").mkdir(parents=True)
    (workspace / "cohorts/scale").symlink_to(elsewhere / "cohorts/scale")
    error = refusal(workspace)
    assert (error.where, error.got) == ("cohorts/scale", "a link")
    assert error.fix == "put a copy at cohorts/scale in place of the link"


def test_a_cohort_that_is_a_fifo_does_not_wait(tmp_path: Path) -> None:
    workspace = write(tmp_path)
    (workspace / "cohorts/scale/cohort.yaml").unlink()
    os.mkfifo(workspace / "cohorts/scale/cohort.yaml")
    assert refusal(workspace).got == "a FIFO"


def test_the_cohorts_of_this_repository_are_read() -> None:
    loaded = cohort.load(REPOSITORY, "vector_add")
    assert loaded.cell_ids == ("f32-1048576", "f32-1000003", "f32-7")
    assert loaded.route_names == ("plain", "quad", "persistent", "tail")
