"""Run files that this process has open: files never change, so what was opened and verified once stays so.

Small files are held in memory, large ones are mapped, and a mapping holds a file descriptor. Descriptors are few, so
the files used least recently are closed when there are too many; they are opened again, and verified again, when they
are needed.
"""

from __future__ import annotations

import resource
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from headrace.relation import runfile
from headrace.relation.runfile import StoredRun
from headrace.relation.runset import AnyRun, Router, RunSet
from headrace.runtime.log import RECENT, BucketState

_SMALL_LIMIT = 8192
_EMPTY = BucketState()


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 65536 if soft == resource.RLIM_INFINITY else soft


class OpenRuns:
    """The run files one process has open, by path."""

    def __init__(self, mapped_limit: int | None = None, small_limit: int = _SMALL_LIMIT) -> None:
        # Half of the descriptors, because Spark and the user need some too.
        self._limits = {True: mapped_limit or max(16, _descriptors() // 2), False: small_limit}
        self._runs: dict[bool, OrderedDict[str, StoredRun]] = {True: OrderedDict(), False: OrderedDict()}

    def of(self, root: str, states: Mapping[int, BucketState], bucket: int) -> list[AnyRun]:
        """Open the runs of a bucket: its own, and then its share of the runs that have entries of all buckets."""
        runs: list[AnyRun] = list(self.opened(root, states.get(bucket, _EMPTY)))
        shares = (run.in_bucket(bucket) for run in self.opened(root, states.get(RECENT, _EMPTY)))
        return runs + [share for share in shares if share.rows]

    def of_all(
        self, root: str, states: Mapping[int, BucketState], buckets: int = 1, router: Router | None = None
    ) -> RunSet:
        """Open the runs of all buckets, those with entries of several buckets first."""
        recent = self.opened(root, states.get(RECENT, _EMPTY))
        runs, homes = [*recent], [-1] * len(recent)
        for bucket, state in states.items():
            if bucket != RECENT:
                runs += self.opened(root, state)
                homes += [bucket] * len(state.runs)
        return RunSet(runs, homes, buckets, router)

    def opened(self, root: str, state: BucketState) -> list[StoredRun]:
        """Open the runs of a state as they are."""
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
