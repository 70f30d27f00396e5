"""Gate contract: what may be launched on this target, and the nearest things that may not."""

from typing import Any

import pytest

from gates.contract import CHECKS, ContractFacts, ContractGate, ContractSettings
from qualify.contract import Argument, Launch, Memset, PointerMember, PointerTable, ScalarMember, Struct, TensorMap
from qualify.domain import Domain
from qualify.subject import Subject
from tests.gates.build import LIMITS, NoBench, arguments, arm, buffer, check, kernel, not_held, subject, verdict


def judged(about: Subject) -> dict[str, bool | None]:
    facts = ContractGate().measure(about, NoBench(), ContractSettings())
    return not_held(verdict("contract", about, facts))


def limits(**changes: Any) -> Any:
    return LIMITS.model_copy(update=changes)


def with_launch(*launches: Launch, **changes: Any) -> Subject:
    return subject(candidate=arm("wide", *launches), **changes)


@pytest.mark.parametrize("toolkit", ["simulated-1.0", "pocl-3.0", "cuda-13.2"])
def test_a_plain_contract_passes_on_every_runtime(toolkit: str) -> None:
    about = subject(toolkit)
    assert not judged(about)
    found = verdict("contract", about, ContractGate().measure(about, NoBench(), ContractSettings()))
    assert {each.name for each in found.checks} == CHECKS


@pytest.mark.parametrize(
    ("about", "closed"),
    [
        (subject(candidate=arm(identity=None, error="wide.k:3: include of /etc/passwd")), {"composed": False}),
        (subject(incumbent=arm("plain", identity=None)), {"incumbent": None}),
        (with_launch(kernel(grid=0)), {"grid": False}),
        (with_launch(kernel(grid=(1 << 30) + 1)), {"grid": False}),
        (with_launch(kernel(block=0)), {"block": False}),
        (with_launch(kernel(block=1025)), {"block": False}),
        (with_launch(kernel(), kernel("second", grid=-1)), {"grid": False}),
        (with_launch(kernel(shared_bytes=65537)), {"shared": False}),
        (with_launch(kernel(shared_bytes=-1)), {"shared": False}),
        (with_launch(kernel(shared_bytes=16), toolkit="pocl-3.0"), {"shared": False}),
        (with_launch(kernel(cluster=(2, 1, 1))), {"extras": False}),
        (with_launch(kernel(cooperative=True)), {"extras": False}),
        (with_launch(kernel(arguments=("y", "c"))), {"arguments": False}),
        (with_launch(kernel(), Memset(memset="z")), {"arguments": False}),
        (with_launch(kernel(), Memset(memset="a")), {"arguments": False}),
        (with_launch(Memset(memset="y")), {"launches": False}),
        (subject(arguments=arguments(0)), {"shapes": False, "outputs": None}),
        (subject(arguments=arguments(-3)), {"shapes": False, "outputs": None, "memory": None}),
        (subject(arguments=arguments(dtype="float24")), {"dtypes": False, "memory": None}),
        (subject(arguments=(*arguments(), buffer("s", "scratch", 1 << 38))), {"memory": False}),
        (subject(arguments=(*arguments(), buffer("s", "scratch", 1 << 80))), {"memory": False}),
        (
            subject(arguments=(*arguments()[:3], Argument(name="n", kind="scalar", dtype="int32", value=str(1 << 31)))),
            {"scalars": False},
        ),
        (subject(arguments=(*arguments()[:3], Argument(name="n", kind="scalar", dtype="int32"))), {"scalars": False}),
        (
            subject(arguments=tuple(a.model_copy(update={"align": 24}) for a in arguments())),
            {"alignment": False, "memory": None},
        ),
        (subject(limits=limits(parameter_bytes=27)), {"parameters": False}),
    ],
)
def test_the_nearest_things_that_may_not_be_launched(about: Subject, closed: dict[str, bool | None]) -> None:
    assert judged(about) == closed


@pytest.mark.parametrize(
    ("about", "closed"),
    [
        (subject(limits=limits(block_threads=None)), {"block": None}),
        (subject(limits=limits(block=None)), {"block": None}),
        (subject("cuda-13.2", limits=limits(grid=None)), {"grid": None}),
        (subject("pocl-3.0", limits=limits(grid=None)), {}),
        (with_launch(kernel(shared_bytes=16), limits=limits(shared_bytes=None)), {"shared": None}),
        (subject(limits=limits(shared_bytes=None, parameter_bytes=None, memory_bytes=None)), {}),
        (
            subject(arguments=(*arguments(), buffer("s", "scratch", 1 << 26)), limits=limits(memory_bytes=None)),
            {"memory": None},
        ),
    ],
)
def test_an_unknown_limit_closes_where_it_matters(about: Subject, closed: dict[str, bool | None]) -> None:
    assert judged(about) == closed


def test_an_empty_cell_that_launches_nothing_is_inconclusive() -> None:
    empty = arm("plain").model_copy(update={"launches": ()})
    assert judged(subject(arguments=arguments(0), candidate=empty)) == {"outputs": None, "launches": None}


def test_a_terabyte_of_scratch_says_how_much_it_needs() -> None:
    about = subject(arguments=(*arguments(), buffer("s", "scratch", 1 << 38)))
    found = verdict("contract", about, ContractGate().measure(about, NoBench(), ContractSettings()))
    assert (check(found, "memory").got or "").startswith("1099511")


COUNT = ScalarMember(name="n", offset_bytes=0, dtype="int32", value="7")
TO_Y = PointerMember(name="y", offset_bytes=8, to="y")


def with_struct(*members: ScalarMember | PointerMember, toolkit: str = "cuda-13.2", **more: Any) -> Subject:
    """A struct of 16 bytes behind the usual arguments."""
    fields: dict[str, Any] = {"dtype": "uint8", "shape": (16,), "align": 8, **more}
    held = Argument(name="p", kind="struct", holds=Struct(type_name="P", members=members), **fields)
    return subject(toolkit, arguments=(*arguments(), held))


def test_a_struct_passes_where_the_runtime_has_what_it_holds() -> None:
    assert not judged(with_struct(COUNT, TO_Y))
    assert not judged(with_struct(COUNT, toolkit="pocl-3.0"))
    assert judged(with_struct(COUNT, TO_Y, toolkit="pocl-3.0")) == {"kinds": False}
    assert judged(with_struct(COUNT, toolkit="simulated-1.0")) == {"kinds": False}


@pytest.mark.parametrize(
    "about",
    [
        with_struct(COUNT, TO_Y.model_copy(update={"offset_bytes": 12})),
        with_struct(COUNT, TO_Y.model_copy(update={"offset_bytes": 16})),
        with_struct(TO_Y, TO_Y.model_copy(update={"name": "z"})),
        with_struct(TO_Y.model_copy(update={"to": "n"})),
        with_struct(TO_Y.model_copy(update={"to": "nothing"})),
        with_struct(COUNT, TO_Y, align=4),
        with_struct(COUNT, shape=(12,)),
        with_struct(COUNT, dtype="uint16", shape=(8,)),
        with_struct(COUNT.model_copy(update={"value": "2147483648"})),
        with_struct(COUNT.model_copy(update={"dtype": "int24"})),
        subject("cuda-13.2", arguments=(*arguments(), Argument(name="p", kind="struct", dtype="uint8", shape=(16,)))),
        subject(
            "cuda-13.2",
            arguments=tuple(a.model_copy(update={"holds": Struct(type_name="P", members=())}) for a in arguments()),
        ),
    ],
)
def test_the_nearest_structs_that_no_compiler_lays_out(about: Subject) -> None:
    assert judged(about)["held"] is False


def with_table(toolkit: str = "cuda-13.2", to: tuple[str, ...] = ("a", "y"), **more: Any) -> Subject:
    """Ten addresses of each of two buffers of 1,000 floats, the last at their last hundred."""
    held = PointerTable(to=to, **{"count": 10, "step_bytes": 400, **more})
    table = Argument(name="t", kind="pointers", dtype="uint64", shape=(20,), holds=held)
    return subject(toolkit, arguments=(*arguments(), table))


def test_a_table_of_addresses_passes_on_cuda_only() -> None:
    assert not judged(with_table())
    assert judged(with_table("pocl-3.0")) == {"kinds": False}
    assert judged(with_table("simulated-1.0")) == {"kinds": False}


@pytest.mark.parametrize(
    "about",
    [
        with_table(step_bytes=448),
        with_table(step_bytes=399),
        with_table(count=11),
        with_table(to=("a",)),
        with_table(to=("a", "n")),
        with_table(to=("a", "t")),
        with_table(to=("a", "z")),
    ],
)
def test_the_nearest_tables_with_an_address_outside_a_buffer(about: Subject) -> None:
    assert judged(about) == {"held": False}


def test_constants_fit_into_constant_memory_and_are_no_parameters_of_cuda() -> None:
    for toolkit, bytes_ in (("cuda-13.2", 28), ("pocl-3.0", 36)):
        about = subject(toolkit, arguments=(*arguments(), buffer("c", "constant", 1 << 14)))
        for limit, closed in ((bytes_, {}), (bytes_ - 1, {"parameters": False})):
            assert judged(about.model_copy(update={"limits": limits(parameter_bytes=limit)})) == closed
    taps = (buffer("c", "constant", 1 << 13), buffer("d", "constant", (1 << 13) + 1))
    assert judged(subject("cuda-13.2", arguments=(*arguments(), *taps))) == {"held": False}
    assert judged(subject(arguments=(*arguments(), taps[0]))) == {"kinds": False}


def with_map(arch: str = "sm_90", toolkit: str = "cuda-13.2", align: int = 16, **more: Any) -> Subject:
    """A map of 1,000 floats as 50 rows of 20."""
    made = {"of": "a", "dims": (20, 50), "strides_bytes": (80,), "box": (4, 256), **more}
    held = Argument(name="m", kind="tensormap", dtype="uint8", shape=(128,), align=64, holds=TensorMap(**made))
    passed = tuple(item.model_copy(update={"align": align}) for item in arguments())
    return subject(toolkit, arguments=(*passed, held), domain=Domain(toolkit=toolkit, arch=arch))


def test_a_tensor_map_passes_where_hardware_reads_it() -> None:
    assert not judged(with_map())
    assert not judged(with_map("sm_120", swizzle_bytes=32, box=(8, 1)))
    assert judged(with_map("sm_89")) == {"kinds": False}
    assert judged(with_map("virtual", "pocl-3.0")) == {"kinds": False}


@pytest.mark.parametrize(
    "about",
    [
        with_map(of="n"),
        with_map(of="m"),
        with_map(dims=(20, 51)),
        with_map(dims=(21, 50)),
        with_map(strides_bytes=(96,)),
        with_map(strides_bytes=(72,)),
        with_map(strides_bytes=()),
        with_map(box=(4,)),
        with_map(box=(3, 1)),
        with_map(box=(4, 257)),
        with_map(box=(4, 0)),
        with_map(dims=(20, 0)),
        with_map(swizzle_bytes=32, box=(12, 1)),
        with_map(dims=(1,) * 6, strides_bytes=(16,) * 5, box=(4,) * 6),
        with_map(align=8),
    ],
)
def test_the_nearest_tensor_maps_that_no_hardware_reads(about: Subject) -> None:
    assert judged(about) == {"held": False}


def test_the_bytes_of_a_struct_count_as_parameters() -> None:
    about = with_struct(COUNT, TO_Y)
    for limit, closed in ((44, {}), (43, {"parameters": False})):
        assert judged(about.model_copy(update={"limits": limits(parameter_bytes=limit)})) == closed


def test_an_arena_smaller_than_its_buffers_is_no_measurement() -> None:
    facts = ContractFacts(element_bits={"float32": 32, "int32": 32}, arena_bytes=100)
    assert not_held(verdict("contract", subject(), facts)) == {"facts": None}
