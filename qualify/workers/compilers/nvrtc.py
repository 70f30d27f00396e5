"""CUDA C++ by the NVRTC of one toolkit's folder: source in; cubin, report and PTX read as one. It needs no board.

The cubin is what is qualified (R7.2). Fragments are named headers of each other; of files, only headers below the
toolkit's own folder can be included.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.resources import files as package_files
from pathlib import Path

from qualify.channel import Described
from qualify.contract import Module, symbols
from qualify.cuda_toolkits import ARCH_VARIABLE, FOLDERS_VARIABLE, NEWEST, files
from qualify.diagnostics import Finding
from qualify.domain import Limits
from qualify.errors import RigError
from qualify.objectcode import Built
from qualify.ptx import scan
from qualify.resources import parse_report
from qualify.targets import knows, limits, number, variants
from qualify.workers.compilers.base import Compiler, built, refused
from qualify.workers.compilers.cubin import CubinError, read
from qualify.workers.compilers.cuda_facts import MAX_FINDINGS, facts
from qualify.workers.compilers.nvrtc_library import Compilation, Nvrtc
from qualify.workers.unit import unit

EXTENSION = "cubin"
HARNESS_FILES = ("harness.cu", "fnv.cu")
#: Options that name no path, no target and no other tool's options (a second `-arch` would win over ours).
_OPTION = re.compile(
    r"--?(?:use_fast_math|extra-device-vectorization|restrict|device-int128|default-device|lineinfo|generate-line-info"
    r"|std=c\+\+(?:11|14|17|20)|maxrregcount=[0-9]{1,3}|(?:ftz|prec-div|prec-sqrt|fmad)=(?:true|false))"
)
_VERSION = re.compile(rb"release \d+\.\d+, V(\d+\.\d+\.\d+)")
_NO_CACHE_SINCE = (12, 9)  # From here on a build may be served from a cache, without a report.
_NOTHING = 'extern "C" __global__ void nothing() {}\n'


class NvrtcCompiler(Compiler):
    """One NVRTC in this process, for one architecture."""

    def __init__(self) -> None:
        """Take folders and architecture from the environment. Raises RigError if they are not there or do not fit."""
        arch = _variable(ARCH_VARIABLE)
        self._toolkit = files(*map(Path, _variable(FOLDERS_VARIABLE).split(os.pathsep)))
        self._nvrtc = Nvrtc(self._toolkit)
        self._architectures = self._nvrtc.architectures()
        self._arch = f"sm_{max(self._architectures)}" if arch == NEWEST else arch
        if number(self._arch) not in self._architectures:
            raise RigError(self._unknown(self._arch), fix="plan an architecture of this toolkit, or a toolkit with it")

    def describe(self) -> Described:
        """The toolkit's release and full version, and what it compiles for; it knows no board."""
        made = self._nothing
        return Described(
            version=".".join(str(part) for part in self._nvrtc.release),
            toolkit_build=f"cuda-{self._version(made)}",
            arch=self._arch,
            board=None,
            limits=self._limits(self._arch),
            targets=tuple(f"sm_{item}" for item in self._architectures),
            reports=parse_report(made.log).entry("nothing", self._arch) is not None,
        )

    def readable(self) -> tuple[Path, ...]:
        """The toolkit's headers and libraries."""
        return (*self._toolkit.includes, self._toolkit.library.parent, self._toolkit.builtins.parent)

    def canary(self) -> None:
        """Compile an empty kernel. Raises RigError: no module can be blamed after that."""
        self._version(self._nothing)

    def harness(self) -> bytes:
        """The harness's own kernels for the architecture. Raises RigError if the toolkit does not take them."""
        folder = package_files("qualify.workers.devices")
        sources = {name: (folder / name).read_bytes() for name in HARNESS_FILES}
        text = "".join(f'#include "{name}"\n' for name in sources)
        made = self._nvrtc.compile(text, sources, self._options(self._arch, ()))
        if not made.succeeded:
            raise RigError(f"the harness does not compile: {made.log.decode(errors='replace')}", fix="report it")
        return made.cubin

    def build(self, module: Module, fragments: Mapping[str, bytes]) -> tuple[Built, bytes | None]:
        """Compile for the module's target. Raises ValueError for a module that composition should have refused."""
        unfit = [option for option in module.options if not _OPTION.fullmatch(option)]
        if unfit:
            return self._refused(
                module, Finding(kind="option", level="error", text=f"not taken: {' '.join(unfit)}")
            ), None
        if not self._has(module.target):
            text = self._unknown(module.target)
            return self._refused(module, Finding(kind="target", level="error", text=text, target=module.target)), None
        options = self._options(module.target, module.options)
        made = self._nvrtc.compile(unit(module), fragments, options, symbols(module.launches))
        return self._report(module, made)

    def _report(self, module: Module, made: Compilation) -> tuple[Built, bytes | None]:
        """The object with all that is known of it. An error in the log refuses it, whatever else is there."""
        report = parse_report(made.log)
        if not made.succeeded or report.refused or not made.cubin:
            log = made.log.strip(b"\0\n") or made.result.encode()
            return self._refused(module, *_with_hints(report.findings, module.target), log=log), None
        try:
            cubin, ptx = read(made.cubin), scan(made.ptx.decode("utf-8", "replace"))
        except (CubinError, ValueError) as error:
            return self._refused(module, Finding(kind="other", level="error", text=str(error)), log=made.log), None
        target_limits = self._limits(module.target)
        names = {lowered: symbol for symbol, lowered in made.lowered.items()}
        found = facts(cubin, report, ptx, names, target_limits, module.target)
        plain = built(made.log, found.entries, made.cubin, EXTENSION, target_limits, reproducible=True)
        known = {name: value for name, value in vars(found).items() if name != "entries"}
        return plain.model_copy(update=known), made.cubin

    def _refused(self, module: Module, *findings: Finding, log: bytes = b"") -> Built:
        """A refusal; without a log of the compiler's own, its first finding is the log."""
        text = log or f"error: {findings[0].text}".encode()
        plain = refused(text, EXTENSION, self._limits(module.target))
        return plain.model_copy(update={"findings": findings[:MAX_FINDINGS]})

    def _options(self, target: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
        standard = () if any("std=" in option for option in wanted) else ("--std=c++17",)
        cache = ("--no-cache",) if self._nvrtc.release >= _NO_CACHE_SINCE else ()
        includes = tuple(f"--include-path={folder}" for folder in self._toolkit.includes)
        return (f"--gpu-architecture={target}", "--ptxas-options=-v", *standard, *cache, *includes, *wanted)

    def _has(self, target: str) -> bool:
        """Whether the toolkit may have the target; what was never measured NVRTC decides itself."""
        return number(target) in self._architectures and knows(self._nvrtc.release, target) is not False

    def _unknown(self, target: str) -> str:
        release = ".".join(str(part) for part in self._nvrtc.release)
        have = ", ".join(f"sm_{item}" for item in self._architectures)
        return f"{target} is no target of the toolkit {release}, which has {have}"

    def _limits(self, target: str) -> Limits:
        return limits(target, self._nvrtc.release)

    @cached_property
    def _nothing(self) -> Compilation:
        """What becomes of an empty kernel: the canary's, which tells of the toolkit too."""
        return self._nvrtc.compile(_NOTHING, {}, self._options(self._arch, ()))

    def _version(self, made: Compilation) -> str:
        """The full version, as NVRTC writes it into the PTX of an empty kernel. Raises RigError."""
        version = _VERSION.search(made.ptx)
        if version is None:
            got = made.log.decode(errors="replace")
            raise RigError(
                f"{self._toolkit.library}: expected PTX that names its compiler, got {got}",
                fix="install the toolkit again",
            )
        return version[1].decode()


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise RigError(f"expected {name} in the worker's environment, got none", fix="report it: the parent sets it")
    return value


def _with_hints(findings: Iterable[Finding], target: str) -> Iterable[Finding]:
    """An instruction that the target lacks names the variants that may have it."""
    others = ", ".join(name for name in variants(target) if name != target)
    for finding in findings:
        if finding.kind == "target" and finding.about and others:
            yield finding.model_copy(update={"text": f"{finding.text}; a variant may have it: {others}"})
        else:
            yield finding
