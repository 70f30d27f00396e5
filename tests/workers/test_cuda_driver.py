"""What needs no board of what the CUDA worker tells a driver: launches with their attributes, names of boards."""

from __future__ import annotations

from typing import Any

import pytest
from cuda.bindings import driver

from qualify.contract import Kernel
from qualify.elements import DTYPES
from qualify.steps import Damage
from qualify.workers.devices.cuda_arguments import Watched, changed, map_type
from qualify.workers.devices.cuda_board import uuid_text
from qualify.workers.devices.cuda_driver import configuration

STREAM = driver.CUstream(0x1234)


def told(**changes: Any) -> tuple[Any, dict[str, Any]]:
    """A launch's configuration and its attributes by name."""
    kernel = Kernel(**{"symbol": "k", "grid": (6, 5, 4), "block": (3, 2, 1), **changes})
    config, attributes = configuration(kernel, STREAM)
    prefix = len("CU_LAUNCH_ATTRIBUTE_")
    return config, {one.id.name[prefix:]: one.value for one in attributes}


def test_a_plain_launch_has_no_attributes() -> None:
    config, attributes = told(shared_bytes=700)
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (6, 5, 4)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (3, 2, 1)
    assert (config.sharedMemBytes, int(config.hStream), config.numAttrs) == (700, 0x1234, 0)
    assert attributes == {}


def test_every_extra_is_an_attribute_with_its_value() -> None:
    config, attributes = told(cluster=(2, 5, 1), cooperative=True, carve_out_percent=0)
    assert config.numAttrs == len(config.attrs) == 3
    cluster = attributes["CLUSTER_DIMENSION"].clusterDim
    assert (cluster.x, cluster.y, cluster.z) == (2, 5, 1)
    assert attributes["COOPERATIVE"].cooperative == 1
    assert attributes["PREFERRED_SHARED_MEMORY_CARVEOUT"].sharedMemCarveout == 0


def test_every_element_type_has_a_tensor_maps_type_of_its_size() -> None:
    names = {dtype: map_type(dtype).name.removeprefix("CU_TENSOR_MAP_DATA_TYPE_") for dtype in DTYPES}
    assert {name: names[name] for name in ("float16", "bfloat16", "float32", "float64")} == {
        "float16": "FLOAT16",
        "bfloat16": "BFLOAT16",
        "float32": "FLOAT32",
        "float64": "FLOAT64",
    }
    others = {name: kind for name, kind in names.items() if not kind.endswith(name.upper())}
    assert {name: int(kind.removeprefix("UINT")) for name, kind in others.items()} == {
        name: DTYPES[name].bits for name in others
    }


def test_a_changed_table_is_damage_at_its_place_in_the_arena() -> None:
    watched = Watched(offset_bytes=4096, data=b"abcd")
    assert changed(watched, b"abcd") == Damage(bytes=0, first_offset=None)
    assert changed(watched, b"aXcX") == Damage(bytes=2, first_offset=4097)


@pytest.mark.parametrize(
    ("name", "kind"), [("NVIDIA H200", "GPU"), ("NVIDIA H200 MIG 1g.18gb", "MIG"), ("MIGHTY 9000", "GPU")]
)
def test_a_board_is_named_as_its_driver_takes_it(name: str, kind: str) -> None:
    assert uuid_text(bytes(range(16)), name) == f"{kind}-00010203-0405-0607-0809-0a0b0c0d0e0f"
