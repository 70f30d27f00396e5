"""Graphs of a CUDA stream: what was captured, of which nodes it consists, and its replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver

from qualify.steps import Census
from qualify.workers.devices.cuda_driver import call


@dataclass(frozen=True)
class Graph:
    """An executable graph. `work` is what was captured; it keeps the memory that launches' parameters lie in."""

    census: Census
    work: Callable[[], object]
    graph: Any
    executable: Any
    stream: Any

    def replay(self) -> None:
        """Enqueue one replay. Raises DriverError."""
        call(driver.cuGraphLaunch, self.executable, self.stream)

    def forget(self) -> None:
        """Destroy it; nothing of it may run any more. Raises DriverError."""
        call(driver.cuGraphExecDestroy, self.executable)
        call(driver.cuGraphDestroy, self.graph)


def capture(work: Callable[[], object], stream: Any) -> Graph:
    """What `work` enqueues on `stream`, as a graph that is uploaded to the device; nothing of it runs.

    Raises DriverError. Work that goes elsewhere is not in the graph, and its census shows it.
    """
    call(driver.cuStreamBeginCapture, stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    work()
    graph = call(driver.cuStreamEndCapture, stream)
    census = count(graph)
    executable = call(driver.cuGraphInstantiate, graph, 0)
    call(driver.cuGraphUpload, executable, stream)
    return Graph(census, work, graph, executable, stream)


def count(graph: Any) -> Census:
    """How many nodes of each kind a graph has. Raises DriverError."""
    _, number = call(driver.cuGraphGetNodes, graph, 0)
    nodes = call(driver.cuGraphGetNodes, graph, number)[0] if number else ()
    kinds = Counter(int(call(driver.cuGraphNodeGetType, node)) for node in nodes)
    kind = driver.CUgraphNodeType
    kernels, memsets = kinds[int(kind.CU_GRAPH_NODE_TYPE_KERNEL)], kinds[int(kind.CU_GRAPH_NODE_TYPE_MEMSET)]
    return Census(kernels=kernels, memsets=memsets, others=number - kernels - memsets)
