"""Run files that this process has open: files never change, so what was opened and verified once stays so.

Small files are held in memory, large ones are mapped. All of it could be read again, so it is bounded: in bytes, by a
share of the memory of the process (`cache_share`), and in descriptors, because a mapping holds one. What was used
least recently goes first; it is opened again, and verified again, when it is needed.

And it is given back. A thread lets go of what nobody has used for some minutes, so that a process that is idle holds
nothing, and of files that are gone: no program names them any more, and a file that is mapped keeps its place on the
disk. It is the process that writes which removes files; in all others nothing else tells.

What this process has written itself it need not verify when it opens it the first time.
"""

from __future__ import annotations

import ctypes
import operator
import os
import resource
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headrace.relation import runfile
from headrace.relation.runlayout import corrupt
from headrace.relation.runset import AnyRun, Router, RunSet
from headrace.relation.storedrun import StoredRun
from headrace.runtime.cache_share import address_limit, cache_bytes
from headrace.runtime.record import RECENT, BucketState, RunRef

IDLE_SECONDS = 180.0  # what was not used for so long is let go
_LOOK_SECONDS = 10.0  # so often is looked for what is idle, or gone
_WRITTEN_LIMIT = 4096  # a worker writes many files that it never reads
_WORTH_TRIMMING = 8 << 20
_EMPTY = BucketState()
_Key = tuple[str, int]  # the path of a file, and where in it a run begins


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 65536 if soft == resource.RLIM_INFINITY else soft


@dataclass(slots=True)
class _Open:
    """An open run: what it takes, when it was used, and the arrangements that have it open with others."""

    run: StoredRun
    held: int  # bytes of memory
    mapped: int  # bytes of the file, if it is mapped
    used: float
    together: list[_Together] = field(default_factory=list)

    @property
    def last_used(self) -> float:
        return max((self.used, *(kept.used for kept in self.together)))


@dataclass(slots=True, eq=False)
class _Together:
    """The runs that an arrangement has in its buckets: their states, and the runs as one set."""

    key: tuple[str, str]
    states: tuple[BucketState, ...]
    members: tuple[_Key, ...]
    runs: RunSet
    used: float


class OpenRuns:
    """The run files one process has open.

    Parameters
    ----------
    mapped_limit : how many files may be mapped; half of the descriptors unless given, because Spark and the user need
        some too.
    memory_limit : how many bytes may be held in memory; the share of the process unless given.
    """

    def __init__(self, mapped_limit: int | None = None, memory_limit: int | None = None) -> None:
        self._mapped_limit = mapped_limit or max(16, _descriptors() // 2)
        self._memory_limit = memory_limit
        self._address_limit: float | None = None
        self.reset()

    def reset(self) -> None:
        """Forget everything; a fork of a process begins so: the thread is not there, and locks may be held for ever."""
        self._lock = threading.Lock()  # threads of one step share the files, and so do all engines of a process
        self._runs: dict[bool, OrderedDict[_Key, _Open]] = {True: OrderedDict(), False: OrderedDict()}  # by mapped
        self._together: dict[tuple[str, str], _Together] = {}  # by location and arrangement
        self._starts: dict[str, set[int]] = {}  # per file, where the runs begin that are open
        self._written: dict[str, bool] = {}  # files that this process wrote and has not opened since, oldest first
        self._held = self._mapped = 0
        self._looking = False

    def __reduce__(self) -> str:
        """Functions that Spark sends to its workers read by way of `OPEN`: there, it is the worker's own."""
        return "OPEN"

    @property
    def memory_limit(self) -> int:
        """How many bytes may be held in memory."""
        if self._memory_limit is None:
            self._memory_limit = cache_bytes()
        return self._memory_limit

    @property
    def held_bytes(self) -> int:
        """How many bytes are held in memory: small files, and what large ones cost besides their mapping."""
        return self._held

    @property
    def mapped_bytes(self) -> int:
        """How many bytes are mapped."""
        return self._mapped

    @property
    def count(self) -> int:
        """How many runs are open."""
        return sum(map(len, self._runs.values()))

    # -- opening ------------------------------------------------------------------------------------------------------

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
        kept = self._together.get((root, name))
        is_same = kept is not None and kept.runs.buckets == buckets and len(kept.states) == len(own)
        if kept is None or not is_same or not all(map(operator.is_, kept.states, own)):
            in_buckets = {bucket: state for bucket, state in states.items() if bucket != RECENT}
            kept = self._keep_together(root, name, own, self.of_all(root, in_buckets, buckets))
        else:
            kept.used = time.monotonic()
        return kept.runs.after(self.opened(root, states.get(RECENT, _EMPTY)), router)

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
            found = self._runs[mapped].get(key)
            if found is not None:
                self._runs[mapped].move_to_end(key)
                found.used = time.monotonic()
            is_written = self._written.pop(path, False)
        if found is not None:
            run = found.run
        else:
            run = runfile.read(Path(path), ref.at, ref.bytes, ref.crc)
            run = run.trusted() if is_written else run
        if run.rows != ref.rows:
            raise corrupt(path, f"it has {run.rows} rows, and the log says {ref.rows}")
        if found is None:
            self._remember(key, run, ref.bytes, mapped)
        return run

    # -- what this process writes and removes -------------------------------------------------------------------------

    def wrote(self, path: Path) -> None:
        """Note a file with one run that this process has just written: its bytes are known, as if it had read them."""
        with self._lock:
            self._written[str(path)] = True
            if len(self._written) > _WRITTEN_LIMIT:
                del self._written[next(iter(self._written))]

    def keep(self, folder: Path, ref: RunRef, data: bytearray) -> None:
        """Keep a small run that is just being written open for the next step: small steps mostly open files."""
        path = f"{folder}/{ref.name}"
        self._remember((path, ref.at), runfile.decode_own(data, path), ref.bytes, mapped=False)

    def forget(self, root: str, names: Iterable[str]) -> None:
        """Close the runs of files that no longer exist."""
        with self._lock:
            self._close_files([f"{root}/runs/{name}" for name in names])

    def forget_all(self, root: str) -> None:
        """Close all runs of a location."""
        folder = f"{root}/runs/"
        with self._lock:
            self._close_files([path for path in (*self._starts, *self._written) if path.startswith(folder)])
            for key in [key for key in self._together if key[0] == root]:
                self._part(self._together[key])

    # -- giving back --------------------------------------------------------------------------------------------------

    def look_over(self, idle: float = IDLE_SECONDS, settled: float = _LOOK_SECONDS) -> None:
        """Let go of what was not used for `idle` seconds, and of files that are gone.

        A file that was used in the last `settled` seconds is there: it may even be that it is just being written.
        """
        now = time.monotonic()
        resting: dict[str, list[_Key]] = defaultdict(list)
        with self._lock:
            held = self._held
            for runs in self._runs.values():
                for key, one in list(runs.items()):
                    since = now - one.last_used
                    if since >= idle:
                        self._close(key)
                    elif since >= settled:
                        resting[os.path.dirname(key[0])].append(key)
        for folder, keys in resting.items():
            there = _names(folder)
            gone = [] if there is None else [key for key in keys if os.path.basename(key[0]) not in there]
            with self._lock:
                self._close_files({path for path, _ in gone})
        with self._lock:
            for kept in [kept for kept in self._together.values() if now - kept.used >= idle]:
                self._part(kept)
            freed = held - self._held
        if freed >= _WORTH_TRIMMING:
            _trim()

    def _look(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            self.look_over()
            with self._lock:
                if not self.count and not self._together:
                    self._looking = False
                    return

    # -- the books; all of these want the lock ------------------------------------------------------------------------

    def _remember(self, key: _Key, run: StoredRun, size: int, mapped: bool) -> None:
        held = run.aside_bytes + (0 if mapped else size)
        with self._lock:
            if key in self._runs[mapped]:
                self._close(key)  # another thread has opened it meanwhile
            self._runs[mapped][key] = _Open(run, held, size if mapped else 0, time.monotonic())
            self._starts.setdefault(key[0], set()).add(key[1])
            self._held += held
            self._mapped += size if mapped else 0
            self._make_room()
            start = not self._looking and bool(self._starts)
            self._looking = self._looking or start
        if start:
            try:
                threading.Thread(target=self._look, name="headrace-open-runs", daemon=True).start()
            except RuntimeError:  # there is no room for one, or the process is about to end: the next run tries again
                self._looking = False

    def _keep_together(self, root: str, name: str, states: tuple[BucketState, ...], runs: RunSet) -> _Together:
        refs = [ref for state in states for ref in state.runs]
        members = tuple((f"{root}/runs/{ref.name}", ref.at) for ref in refs)
        kept = _Together((root, name), states, members, runs, time.monotonic())
        with self._lock:
            if kept.key in self._together:
                self._part(self._together[kept.key])
            # What is open together is open; so it counts once, and if there is no room for all of it, it is not kept.
            there = [self._runs[ref.bytes > runfile.SMALL].get(key) for key, ref in zip(members, refs, strict=True)]
            if all(one is not None for one in there):
                self._together[kept.key] = kept
                for one in there:
                    assert one is not None
                    one.together.append(kept)
        return kept

    def _part(self, kept: _Together) -> None:
        """Have the runs of an arrangement open for themselves again."""
        del self._together[kept.key]
        for key in kept.members:
            for runs in self._runs.values():
                if key in runs:
                    runs[key].together.remove(kept)

    def _make_room(self) -> None:
        small, large = self._runs[False], self._runs[True]
        if self._address_limit is None:
            limit = address_limit()
            self._address_limit = float("inf") if limit is None else limit / 2
        while len(large) > self._mapped_limit or (large and self._mapped > self._address_limit):
            self._close(self._oldest(large))
        while self._held > self.memory_limit:
            oldest = [self._oldest(runs) for runs in (small, large) if runs]
            self._close(min(oldest, key=lambda key: (small.get(key) or large[key]).used))

    def _oldest(self, runs: OrderedDict[_Key, _Open]) -> _Key:
        """The run that was used least recently; those that are used by way of their arrangement move up first."""
        while True:
            key, one = next(iter(runs.items()))
            last = one.last_used
            if last == one.used:
                return key
            one.used = last
            runs.move_to_end(key)

    def _close_files(self, paths: Collection[str]) -> None:
        for path in paths:
            self._written.pop(path, None)
            for at in list(self._starts.get(path, ())):
                self._close((path, at))

    def _close(self, key: _Key) -> None:
        for runs in self._runs.values():
            one = runs.pop(key, None)
            if one is None:
                continue
            self._held -= one.held
            self._mapped -= one.mapped
            for kept in list(one.together):
                one.together.remove(kept)
                self._part(kept)
        starts = self._starts.get(key[0], set())
        starts.discard(key[1])
        if not starts:
            self._starts.pop(key[0], None)


def _names(folder: str) -> set[str] | None:
    """The names of the files of a folder; None if nothing tells."""
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()
    except OSError:
        return None


def _trim() -> None:
    """Return freed memory to the system: many small pieces would otherwise stay with the process."""
    pa.default_memory_pool().release_unused()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library than that of GNU
        return


OPEN = OpenRuns()
os.register_at_fork(after_in_child=OPEN.reset)
