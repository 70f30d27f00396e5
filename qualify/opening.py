"""A rig that is opened while its command does something else."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress

from qualify import toolkits
from qualify.bench import Rig
from qualify.errors import RigError
from qualify.toolkits import Toolkit

_MODULES = 2  # A plain route and a candidate: a command that screens compiles both.


class Opening:
    """A rig that is opened in a thread of its own, but for its toolkit, which is found before.

    To find it thousands of files are looked at, and a thread that does so beside one that computes waits at each.
    """

    def __init__(self, toolkit: str, arch: str) -> None:
        self._opened: Future[Rig] = Future()
        try:
            found = toolkits.find(toolkit)
        except RigError as error:
            self._opened.set_exception(error)
        else:
            threading.Thread(target=self._open, args=(found, arch), name="rig", daemon=True).start()

    def _open(self, toolkit: Toolkit, arch: str) -> None:
        try:
            self._opened.set_result(Rig.of(toolkit, arch, _MODULES))
        except BaseException as error:  # noqa: BLE001 -- whoever asks for the rig gets it.
            self._opened.set_exception(error)

    def rig(self) -> Rig:
        """The rig, once it is open. Raises what `Rig.open` raises."""
        return self._opened.result()

    def close(self) -> None:
        """Close the rig, if there is one."""
        with suppress(RigError):
            self.rig().close()
