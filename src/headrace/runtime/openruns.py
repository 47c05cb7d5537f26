"""Run files that this process has open: files never change, so what was opened and verified once stays so.

Small files are held in memory, large ones are mapped, and a mapping holds a file descriptor. Descriptors are few, so
the files used least recently are closed when there are too many; they are opened again, and verified again, when they
are needed. What this process has written itself it need not verify when it opens it the first time.
"""

from __future__ import annotations

import operator
import resource
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.relation import runfile
from headrace.relation.runlayout import corrupt
from headrace.relation.runset import AnyRun, Router, RunSet
from headrace.relation.storedrun import StoredRun
from headrace.runtime.record import RECENT, BucketState, RunRef

_SMALL_LIMIT = 8192
_EMPTY = BucketState()
_Key = tuple[str, int]  # the path of a file, and where in it a run begins


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 65536 if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True)
class _Together:
    """The runs that an arrangement has in its buckets: their states, their files, and how many of these are mapped."""

    states: tuple[BucketState, ...]
    files: frozenset[str]
    mapped: int
    runs: RunSet


class OpenRuns:
    """The run files one process has open."""

    def __init__(self, mapped_limit: int | None = None, small_limit: int = _SMALL_LIMIT) -> None:
        self._lock = threading.Lock()  # threads of one step share the files, and so do all engines of a process
        # Half of the descriptors, because Spark and the user need some too.
        self._limits = {True: mapped_limit or max(16, _descriptors() // 2), False: small_limit}
        self._runs: dict[bool, OrderedDict[_Key, StoredRun]] = {True: OrderedDict(), False: OrderedDict()}
        self._together: OrderedDict[tuple[str, str], _Together] = OrderedDict()  # by location and arrangement
        self._starts: dict[str, set[int]] = {}  # per file, where the runs begin that are open
        self._written: set[str] = set()  # files that this process wrote and has not opened since

    def __reduce__(self) -> str:
        """Functions that Spark sends to its workers read by way of `OPEN`: there, it is the worker's own."""
        return "OPEN"

    def of(self, root: str, states: Mapping[int, BucketState], bucket: int) -> list[AnyRun]:
        """Open the runs of a bucket: its own, and then its share of the runs that have entries of all buckets."""
        runs: list[AnyRun] = list(self.opened(root, states.get(bucket, _EMPTY)))
        shares = (run.in_bucket(bucket) for run in self.opened(root, states.get(RECENT, _EMPTY)))
        return runs + [share for share in shares if share.rows]

    def of_all(
        self, root: str, states: Mapping[int, BucketState], buckets: int = 1, router: Router | None = None
    ) -> RunSet:
        """Open the runs of all buckets, those with entries of several buckets first."""
        runs, homes = list[StoredRun](), list[int]()
        for bucket, state in states.items():
            if bucket != RECENT:
                runs += self.opened(root, state)
                homes += [bucket] * len(state.runs)
        return RunSet(runs, homes, buckets).after(self.opened(root, states.get(RECENT, _EMPTY)), router)

    def of_step(
        self, root: str, name: str, states: Mapping[int, BucketState], buckets: int, router: Router | None
    ) -> RunSet:
        """Open the runs of all buckets of an arrangement that small steps change again and again.

        Small steps add recent runs and leave those of the buckets as they are, so the latter stay opened together.
        """
        own = tuple(state for bucket, state in states.items() if bucket != RECENT)
        key = root, name
        with self._lock:
            kept = self._together.pop(key, None)
        if kept is None or len(kept.states) != len(own) or not all(map(operator.is_, kept.states, own)):
            in_buckets = {bucket: state for bucket, state in states.items() if bucket != RECENT}
            files = frozenset(ref.name for state in own for ref in state.runs)
            mapped = sum(ref.bytes > runfile.SMALL for state in own for ref in state.runs)
            kept = _Together(own, files, mapped, self.of_all(root, in_buckets, buckets))
            self._make_room(mapped)
        with self._lock:
            self._together[key] = kept
        return kept.runs.after(self.opened(root, states.get(RECENT, _EMPTY)), router)

    def _make_room(self, mapped: int) -> None:
        """Close runs that are open together and were used least recently, before others with mapped files come."""
        with self._lock:
            mapped += sum(kept.mapped for kept in self._together.values())
            while self._together and 2 * mapped > self._limits[True]:
                mapped -= self._together.popitem(last=False)[1].mapped

    def everything(self, root: str, states: Mapping[int, BucketState]) -> list[StoredRun]:
        """Open the runs of all buckets as they are."""
        return [run for state in states.values() for run in self.opened(root, state)]

    def opened(self, root: str, state: BucketState) -> list[StoredRun]:
        """Open the runs of a state as they are."""
        return [self.one(root, ref) for ref in state.runs]

    def one(self, root: str, ref: RunRef) -> StoredRun:
        """Open a run."""
        path, mapped = f"{root}/runs/{ref.name}", ref.bytes > runfile.SMALL
        key = path, ref.at
        with self._lock:
            run = self._runs[mapped].pop(key, None)
            is_written = path in self._written
            self._written.discard(path)
        if run is None:
            run = runfile.read(Path(path), ref.at, ref.bytes, ref.crc)
            run = run.trusted() if is_written else run
        if run.rows != ref.rows:
            raise corrupt(path, f"it has {run.rows} rows, and the log says {ref.rows}")
        self._remember(key, run, mapped)
        return run

    def wrote(self, path: Path) -> None:
        """Note a file with one run that this process has just written: its bytes are known, as if it had read them."""
        with self._lock:
            self._written.add(str(path))

    def keep(self, folder: Path, ref: RunRef, data: bytearray) -> None:
        """Keep a small run that is just being written open for the next step: small steps mostly open files."""
        path = f"{folder}/{ref.name}"
        self._remember((path, ref.at), runfile.decode_own(data, path), mapped=False)

    def forget(self, root: str, names: Iterable[str]) -> None:
        """Close the runs of files that no longer exist."""
        names = set(names)
        with self._lock:
            for key in [key for key, kept in self._together.items() if not kept.files.isdisjoint(names)]:
                del self._together[key]
            for name in names:
                path = f"{root}/runs/{name}"
                self._written.discard(path)
                for at in self._starts.pop(path, ()):
                    for runs in self._runs.values():
                        runs.pop((path, at), None)

    def forget_all(self, root: str) -> None:
        """Close all runs of a location."""
        folder = f"{root}/runs/"
        with self._lock:
            for runs in self._runs.values():
                for key in [key for key in runs if key[0].startswith(folder)]:
                    del runs[key]
            for path in [path for path in self._starts if path.startswith(folder)]:
                del self._starts[path]
            for own in [own for own in self._together if own[0] == root]:
                del self._together[own]
            self._written = {path for path in self._written if not path.startswith(folder)}

    def _remember(self, key: _Key, run: StoredRun, mapped: bool) -> None:
        runs = self._runs[mapped]
        with self._lock:
            runs[key] = run
            self._starts.setdefault(key[0], set()).add(key[1])
            while len(runs) > self._limits[mapped]:
                (path, at), _ = runs.popitem(last=False)
                starts = self._starts.get(path, set())
                starts.discard(at)
                if not starts:
                    self._starts.pop(path, None)


OPEN = OpenRuns()
