"""Run files that this process has open: files never change, so what was opened and verified once stays so.

Small files are held in memory, large ones are mapped, and a mapping holds a file descriptor. Descriptors are few, so
the files used least recently are closed when there are too many; they are opened again, and verified again, when they
are needed.
"""

from __future__ import annotations

import resource
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from headrace.relation import runfile
from headrace.relation.runfile import StoredRun
from headrace.runtime.log import BucketState

_SMALL_LIMIT = 8192


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 65536 if soft == resource.RLIM_INFINITY else soft


class OpenRuns:
    """The run files one process has open, by path."""

    def __init__(self, mapped_limit: int | None = None, small_limit: int = _SMALL_LIMIT) -> None:
        # Half of the descriptors, because Spark and the user need some too.
        self._limits = {True: mapped_limit or max(16, _descriptors() // 2), False: small_limit}
        self._runs: dict[bool, OrderedDict[str, StoredRun]] = {True: OrderedDict(), False: OrderedDict()}

    def of(self, root: str, state: BucketState) -> list[StoredRun]:
        """Open the runs of a bucket."""
        return [self._one(f"{root}/runs/{ref.name}", ref.bytes > runfile.SMALL) for ref in state.runs]

    def keep(self, path: Path, data: bytearray) -> None:
        """Keep a run that was just written open for the next step, if it is small: small steps mostly open files."""
        if len(data) <= runfile.SMALL:
            written = runfile.decode(np.frombuffer(data, np.uint8), str(path)).trusted()
            self._remember(str(path), written, mapped=False)

    def forget(self, root: str, names: Iterable[str]) -> None:
        """Close runs that no longer exist."""
        for name in names:
            for runs in self._runs.values():
                runs.pop(f"{root}/runs/{name}", None)

    def forget_all(self, root: str) -> None:
        """Close all runs of a location."""
        for runs in self._runs.values():
            for path in [path for path in runs if path.startswith(f"{root}/runs/")]:
                del runs[path]

    def _one(self, path: str, mapped: bool) -> StoredRun:
        run = self._runs[mapped].pop(path, None)
        if run is None:
            run = runfile.read(Path(path))
        self._remember(path, run, mapped)
        return run

    def _remember(self, path: str, run: StoredRun, mapped: bool) -> None:
        runs = self._runs[mapped]
        runs[path] = run
        while len(runs) > self._limits[mapped]:
            runs.popitem(last=False)


OPEN = OpenRuns()
