"""What is shipped: one version, a lock that is the declared dependencies, a wheel of exactly two packages."""

import itertools
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

import qualify
from qualify import starter
from tests.house.tree import ROOT, files, pyproject

PROJECT = pyproject()["project"]


def locked() -> dict[str, str]:
    """Name and version of each package of the lock."""
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE))


def test_the_version_of_the_package_is_that_of_the_project() -> None:
    assert qualify.__version__ == PROJECT["version"]


def test_the_lock_satisfies_every_declared_dependency() -> None:
    groups = (
        PROJECT["dependencies"],
        *PROJECT["optional-dependencies"].values(),
        pyproject()["dependency-groups"]["dev"],
    )
    for requirement in map(Requirement, itertools.chain(*groups)):
        version = locked().get(requirement.name.lower())
        assert version is not None, f"{requirement.name} is not in requirements.lock; run make lock"
        assert requirement.specifier.contains(version), f"{requirement} against {version}; run make lock"


def test_the_lock_pins_every_package_with_hashes_and_names_no_index() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert all(re.match(r"#|    #|[a-z0-9.-]+==\S+ \\$|    --hash=sha256:[0-9a-f]{64}( \\)?$", line) for line in lines)
    assert len(locked()) == sum(line.endswith(" \\") and not line.startswith(" ") for line in lines)


def test_the_wheel_holds_both_packages_and_nothing_else(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = {str(path.relative_to(ROOT)) for path in files() if path.relative_to(ROOT).parts[0] in ("qualify", "gates")}
    assert shipped == ours | {f"qualify/starter/{name}" for name in starter.SHARED}
    assert {"qualify/py.typed", "gates/py.typed"} <= shipped
