"""How arguments become parameters of a kernel: which are passed, their bytes and alignment, and what they hold.

Pure values: what a gate compares with an object's table, and what a launch is composed of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from fractions import Fraction

from qualify.contract import Argument, Kernel, PointerMember, PointerTable, ScalarMember, Struct, TensorMap
from qualify.domain import Runtime
from qualify.elements import DTYPES, encode
from qualify.model import ratio

POINTER_BYTES = 8
#: A cubin's parameters begin at a multiple of this in constant memory (0x160, 0x210, 0x380); offsets count from there.
BANK_ALIGN = 16
#: A tensor map as the driver encodes it, and what its hardware takes.
MAP_BYTES, MAP_ALIGN, MAP_UNIT_BYTES, MAP_AXES, MAP_BOX = 128, 64, 16, 5, 256
#: Kinds whose elements the contract fills, poisons or leaves to a route: what an address may lead to.
_DATA = frozenset({"input", "output", "inout", "scratch"})


def is_symbol(argument: Argument, runtime: Runtime) -> bool:
    """Whether an argument is a variable of the module instead of a parameter: what CUDA calls a constant."""
    return runtime == "cuda" and argument.kind == "constant"


def passed(arguments: Sequence[Argument], kernel: Kernel, runtime: Runtime) -> tuple[Argument, ...]:
    """The arguments that a launch passes, in the order of the kernel's parameters. Raises KeyError for no argument."""
    by_name = {argument.name: argument for argument in arguments}
    names = by_name if kernel.arguments is None else kernel.arguments
    return tuple(by_name[name] for name in names if not is_symbol(by_name[name], runtime))


def parameter_bytes(argument: Argument) -> int:
    """The size of the parameter that passes an argument. Raises KeyError for an unknown dtype."""
    return POINTER_BYTES if argument.is_buffer else argument.elements * DTYPES[argument.dtype].size_bytes


def parameter_align(argument: Argument) -> int:
    """What a parameter's place is a multiple of: its own size, or what its type asks for."""
    return argument.align if argument.kind in {"struct", "tensormap"} else parameter_bytes(argument)


def parameter_offset(end: int, argument: Argument, told: int | None) -> int:
    """Where in the block the parameter behind `end` lies.

    Beyond BANK_ALIGN that depends on where the block begins, so the offset that an object tells is taken if it can be.
    """
    align = parameter_align(argument)
    if align > BANK_ALIGN and told is not None and end <= told < end + align and told % BANK_ALIGN == 0:
        return told
    return -(-end // align) * align


def scalar_bytes(dtype: str, value: str) -> bytes:
    """A number as it is passed, little-endian."""
    return encode(ratio(value), dtype).to_bytes(DTYPES[dtype].size_bytes, "little")


def struct_bytes(argument: Argument) -> bytes:
    """A struct as it is passed, with zeros where addresses go."""
    data = bytearray(argument.elements)
    for member in scalars(argument):
        raw = scalar_bytes(member.dtype, member.value)
        data[member.offset_bytes : member.offset_bytes + len(raw)] = raw
    return bytes(data)


def scalars(argument: Argument) -> tuple[ScalarMember, ...]:
    """The numbers in a struct."""
    return tuple(member for member in _members(argument) if isinstance(member, ScalarMember))


def pointers(argument: Argument) -> tuple[PointerMember, ...]:
    """The addresses in a struct."""
    return tuple(member for member in _members(argument) if isinstance(member, PointerMember))


def _members(argument: Argument) -> tuple[ScalarMember | PointerMember, ...]:
    return argument.holds.members if isinstance(argument.holds, Struct) else ()


def fits(dtype: str, value: str | None) -> bool:
    """Whether there is a value, and an integer type holds it; a float type takes any number."""
    kind = DTYPES.get(dtype)
    if value is None or kind is None:
        return False
    number: Fraction = ratio(value)
    return kind.kind == "float" or (number.denominator == 1 and -kind.sign_bit <= number <= kind.greatest)


def faults(argument: Argument, arguments: Sequence[Argument]) -> Iterator[str]:
    """What is wrong with what an argument holds, beside the contract's other arguments."""
    by_name = {each.name: each for each in arguments}
    if argument.kind == "struct":
        yield from _struct_faults(argument, by_name)
    elif argument.kind == "pointers":
        yield from _table_faults(argument, by_name)
    elif argument.kind == "tensormap":
        yield from _map_faults(argument, by_name)
    elif argument.holds is not None:
        yield f"{argument.kind} {argument.name} holds what its kind does not"


def _struct_faults(argument: Argument, by_name: Mapping[str, Argument]) -> Iterator[str]:
    """Members inside the struct, each at a multiple of its size, none over another; addresses of buffers."""
    if not isinstance(argument.holds, Struct) or argument.dtype != "uint8" or len(argument.shape) != 1:
        yield f"{argument.name} is no struct of bytes"
        return
    if argument.align > 0 and argument.elements % argument.align:
        yield f"{argument.name}: {argument.elements} bytes are no multiple of {argument.align}"
    end = 0
    for member in sorted(argument.holds.members, key=lambda each: each.offset_bytes):
        shown = f"{argument.name}.{member.name}"
        size = _member_bytes(member)
        if size is None or (isinstance(member, ScalarMember) and not fits(member.dtype, member.value)):
            yield f"{shown} has no value that its type holds"
            continue
        at, beyond = member.offset_bytes, argument.elements
        if at < end or at % size or at + size > beyond or size > argument.align:
            yield f"{shown}: {size} bytes at {at} of {beyond} that lie at multiples of {argument.align}"
        elif isinstance(member, PointerMember) and not _is_of(by_name.get(member.to), {*_DATA, "pointers"}):
            yield f"{shown} points to {member.to}, which is no buffer"
        end = at + size


def _member_bytes(member: ScalarMember | PointerMember) -> int | None:
    if isinstance(member, PointerMember):
        return POINTER_BYTES
    return DTYPES[member.dtype].size_bytes if member.dtype in DTYPES else None


def _is_of(argument: Argument | None, kinds: Set[str]) -> bool:
    return argument is not None and argument.kind in kinds


def _table_faults(argument: Argument, by_name: Mapping[str, Argument]) -> Iterator[str]:
    """As many elements as addresses; every address that of an element of its buffer."""
    held = argument.holds
    if not isinstance(held, PointerTable) or argument.dtype != "uint64":
        yield f"{argument.name} is no table of addresses"
        return
    if argument.shape != (len(held.to) * held.count,):
        yield f"{argument.name}: {list(argument.shape)} elements for {len(held.to)} times {held.count} addresses"
    for name in held.to:
        target = by_name.get(name)
        if target is None or target.kind not in _DATA or target.dtype not in DTYPES:
            yield f"{argument.name} points to {name}, which is no buffer"
            continue
        size = DTYPES[target.dtype].size_bytes
        last = (held.count - 1) * held.step_bytes
        if held.step_bytes % size or last + size > target.elements * size:
            yield f"{argument.name}: {held.count} addresses {held.step_bytes} bytes apart leave {name}"


def _map_faults(argument: Argument, by_name: Mapping[str, Argument]) -> Iterator[str]:
    """A box of a tensor inside its buffer, in units that the hardware copies."""
    held, shape = argument.holds, (argument.dtype, argument.shape, argument.align)
    if not isinstance(held, TensorMap) or shape != ("uint8", (MAP_BYTES,), MAP_ALIGN):
        yield f"{argument.name} is no tensor map of {MAP_BYTES} bytes at a multiple of {MAP_ALIGN}"
        return
    target = by_name.get(held.of)
    if target is None or target.kind not in _DATA or target.dtype not in DTYPES:
        yield f"{argument.name} is a map of {held.of}, which is no buffer"
        return
    yield from (f"{argument.name}: {text}" for text in _box_faults(held, target, DTYPES[target.dtype].size_bytes))


def _box_faults(held: TensorMap, target: Argument, size: int) -> Iterator[str]:
    axes = len(held.dims)
    if not 1 <= axes <= MAP_AXES or (len(held.strides_bytes), len(held.box)) != (axes - 1, axes):
        yield f"{axes} axes with {len(held.strides_bytes)} strides and a box of {len(held.box)}"
        return
    if min(held.dims) < 1 or not all(1 <= side <= MAP_BOX for side in held.box):
        yield f"a box of {list(held.box)} in {list(held.dims)}, sides are from 1 to {MAP_BOX}"
        return
    row = held.box[0] * size
    if row % MAP_UNIT_BYTES or (held.swizzle_bytes and row > held.swizzle_bytes):
        yield f"rows of {row} bytes with a swizzle of {held.swizzle_bytes}, they are multiples of {MAP_UNIT_BYTES}"
    if target.align % MAP_UNIT_BYTES or any(each % MAP_UNIT_BYTES or each < 1 for each in held.strides_bytes):
        yield f"a buffer at {target.align} with strides of {list(held.strides_bytes)}, not of {MAP_UNIT_BYTES} bytes"
    steps = zip(held.dims, (size, *held.strides_bytes), strict=True)
    end = size + sum((dim - 1) * step for dim, step in steps)
    if end > target.elements * size:
        yield f"its last element ends at {end} of {target.elements * size} bytes of {target.name}"
