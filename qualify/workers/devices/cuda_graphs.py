"""Graphs of a CUDA stream: what was captured, of which nodes it consists, and its replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver

from qualify.steps import MAX_HELD_CALLS, Census, Segment
from qualify.workers.devices.cuda_driver import call

#: A waiting stream on an H200 has taken 520 nodes of a segment's graphs; that it takes a thousand nobody has seen.
MAX_HELD_NODES = 512


@dataclass(frozen=True)
class Graph:
    """An executable graph. `work` is what was captured; it keeps the memory that launches' parameters lie in."""

    nodes: int
    work: Callable[[], object]
    graph: Any
    executable: Any
    stream: Any

    def replay(self) -> None:
        """Enqueue one replay. Raises DriverError."""
        call(driver.cuGraphLaunch, self.executable, self.stream)

    @property
    def census(self) -> Census:
        """The nodes by kind. Raises DriverError."""
        kind = driver.CUgraphNodeType
        nodes = call(driver.cuGraphGetNodes, self.graph, self.nodes)[0] if self.nodes else ()
        kinds = Counter(int(call(driver.cuGraphNodeGetType, node)) for node in nodes)
        kernels, memsets = kinds[int(kind.CU_GRAPH_NODE_TYPE_KERNEL)], kinds[int(kind.CU_GRAPH_NODE_TYPE_MEMSET)]
        return Census(kernels=kernels, memsets=memsets, others=self.nodes - kernels - memsets)

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
    _, nodes = call(driver.cuGraphGetNodes, graph, 0)
    executable = call(driver.cuGraphInstantiate, graph, 0)
    call(driver.cuGraphUpload, executable, stream)
    return Graph(int(nodes), work, graph, executable, stream)


def holds(step: Segment) -> bool:
    """Whether a stream that waits takes all of a segment; if not, the host would wait for it for ever.

    A replay of a graph takes the host a fraction of the time of its unit, and the lead-in and the flush before it give
    a start: graphs of more nodes are not held back, and the host is ahead of the board all the same (docs/adr).
    """
    launches = (len(step.lead_in) + len(step.timed)) * len(step.launches)
    events = len(step.timed) // step.passes
    return launches <= MAX_HELD_NODES if step.graph else launches + events <= MAX_HELD_CALLS
