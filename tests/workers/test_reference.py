"""The reference worker: exact inputs in, exact outputs out, and a wrong reference named."""

import struct
from fractions import Fraction

import pytest

from qualify import fill
from qualify.bench import Rig
from qualify.errors import RigError
from qualify.gate import WorkerLost
from tests.rigs import ARGUMENTS, HONEST, N, Trial

SEED = "0123456789abcdef"


def exact(rig: Rig, body: str, variant: str = "ordinary") -> tuple[float, ...]:
    trial = Trial(rig, reference=f"import os, sys, numpy as np\ndef add(cell, inputs):\n    {body}\n".encode())
    subject = trial.subject(HONEST["simulated"])
    outputs = rig.bench(subject, {}).exact(subject, variant, SEED)  # type: ignore[arg-type]
    assert outputs.dtype == {"y": "float64"}
    return struct.unpack(f"<{N}d", outputs.data["y"])


def device_input(name: str) -> tuple[float, ...]:
    argument = next(argument for argument in ARGUMENTS if argument.name == name)
    return struct.unpack(f"<{N}f", fill.generate(fill.recipe(argument, "ordinary", SEED), N))


def test_the_outputs_are_exact_for_the_very_inputs_of_the_device(simulated: Rig) -> None:
    found = exact(simulated, "return {'y': inputs['a'] + inputs['b']}")
    pairs = zip(device_input("a"), device_input("b"), strict=True)
    assert [Fraction(value) for value in found] == [Fraction(a) + Fraction(b) for a, b in pairs]


def test_the_cell_and_the_scalars_are_given(simulated: Rig) -> None:
    body = "return {'y': np.full(cell['n'], inputs['n'] + (cell['dtype'] == 'float32'), dtype=np.float64)}"
    assert exact(simulated, body) == (N + 1.0,) * N


@pytest.mark.parametrize(
    ("body", "expected", "got"),
    [
        ("return {'y': (inputs['a'] + inputs['b']).astype(np.float32)}", "y of float64", "float32"),
        ("return {'y': inputs['a'][:-1]}", f"y of shape ({N},)", f"({N - 1},)"),
        ("return {'y': inputs['a'] / 0}", "finite", "not finite"),
        ("return {'z': inputs['a']}", "a mapping of exactly y", "z"),
        ("return inputs['a']", "a mapping of exactly y", "ndarray"),
        ("return {'y': inputs['c']}", "to return outputs", "KeyError"),
        ("inputs['a'][0] = 0; return {'y': inputs['a']}", "to return outputs", "read-only"),
        ("return (", "Python that can be imported", "SyntaxError"),
    ],
)
def test_a_wrong_reference_is_a_rig_error_that_names_its_file(
    body: str, expected: str, got: str, simulated: Rig
) -> None:
    with pytest.raises(RigError) as caught:
        exact(simulated, body)
    assert str(caught.value).startswith("op/reference.py: add: expected")
    assert expected in str(caught.value)
    assert got in str(caught.value)
    assert "mend add in op/reference.py" in caught.value.fix


def test_what_is_not_finite_may_be_exact_for_exceptional_inputs(simulated: Rig) -> None:
    assert exact(simulated, "return {'y': inputs['a'] * np.inf}", "exceptional")


def test_a_lost_reference_blames_nobody_and_is_replaced(simulated: Rig) -> None:
    with pytest.raises(WorkerLost) as caught:
        exact(simulated, "os._exit(3)")
    assert (caught.value.loss.step, caught.value.loss.arm, caught.value.loss.exit_code) == ("reference", None, 3)
    assert exact(simulated, "return {'y': inputs['a'] + inputs['b']}")
