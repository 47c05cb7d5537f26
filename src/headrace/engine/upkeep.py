"""Upkeep: the merges that steps owe, done beside later steps.

A commit tells which buckets it changed. If one of them owes a merge, a thread does it, and ends when nothing is owed.
The new runs take their place with the next commit, which is a step's, or the thread's own if no step is running. If
steps come faster than their merges, the next step does some of the merges first, so that the number of runs (and so the
cost of a look at them) stays bounded.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from headrace.engine.store import Store
from headrace.errors import HeadraceError
from headrace.runtime.merges import Kind, Merge, Merging, Replacement, merge_owed
from headrace.runtime.record import PENDING, Arrangements, BucketState, Record
from headrace.runtime.runwriter import RunWriter

MOST_RUNS = 48  # of a bucket; beyond this the next step merges first
_LOG = logging.getLogger("headrace")
_Key = tuple[str, int]  # an arrangement and a bucket
_NONE = BucketState()
_PATIENCE = 0.05  # seconds until a waiting step looks again


class _Stopped(Exception):
    """The engine is being closed."""


class Upkeep:
    """The merges of one engine.

    Parameters
    ----------
    kind : describes an arrangement; None if its table or view has been dropped.
    lock : whoever commits holds it.
    """

    def __init__(self, store: Store, kind: Callable[[str], Kind | None], lock: threading.RLock) -> None:
        self._store = store
        self._kind = kind
        self._lock = lock
        self._changed = threading.Condition()  # guards all that follows
        self._owed: set[_Key] = set()
        self._busy: set[_Key] = set()  # being merged, or merged and not committed yet
        self._behind: set[_Key] = set()
        self._trouble: dict[_Key, BaseException] = {}
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Take over from an engine that left merges undone, and follow all commits from now on."""
        self._store.after_commit = self._committed
        self._look(self._store.snapshot.arrangements)

    def make_room(self) -> None:
        """Merge until no bucket has too many runs; the caller holds the lock, and is about to take a step."""
        self._try_again(self._behind)
        while self._behind and self._advance(lambda key: key in self._behind):
            pass

    def finish(self) -> None:
        """Do all merges that are owed now; the caller holds the lock."""
        self._try_again(self._trouble.keys())
        while self._advance(lambda key: True):
            pass
        for error in self._trouble.values():
            raise error  # of a merge that was under way in the thread

    def stop(self) -> None:
        """Give up the merge that is under way, and commit those that are done."""
        with self._changed:
            self._is_stopped = True
            thread = self._thread
        if thread is not None:
            thread.join()
        # If that fails, the files of merges are orphans, which the next engine removes and merges again.
        with self._lock, contextlib.suppress(OSError, HeadraceError):
            self._commit()

    def trouble(self) -> dict[str, Any]:
        """Which merges failed, for the status of the engine; empty if none did."""
        with self._changed:
            failed = [f"{name}, bucket {bucket}: {error}" for (name, bucket), error in self._trouble.items()]
        return {"failed_merges": failed} if failed else {}

    # -- what is owed ---------------------------------------------------------------------------------------------

    def _committed(self, record: Record, merged: list[Replacement]) -> None:
        with self._changed:
            for replacement in merged:
                self._busy -= {(replacement.arrangement, bucket) for bucket in replacement.gone}
            for key in [key for key in (*self._owed, *self._behind, *self._trouble) if key[0] in record.dropped]:
                self._owed.discard(key)
                self._behind.discard(key)
                self._trouble.pop(key, None)
            self._changed.notify_all()
        self._look(record.buckets)

    def _look(self, changed: Arrangements) -> None:
        """Note what is owed in buckets that have changed, and see that it is done."""
        snapshot = self._store.snapshot.arrangements
        with self._changed:
            for name, states in changed.items():
                now = snapshot.get(name, {})
                for bucket in states:
                    key = name, bucket
                    runs = len(now.get(bucket, _NONE).runs)
                    _put(self._behind, key, runs > MOST_RUNS and not name.startswith(PENDING))
                    _put(self._owed, key, key not in self._busy and self._merge(key) is not None)
            if self._owed and self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(target=self._run, name="headrace-upkeep", daemon=True)
                self._thread.start()

    def _merge(self, key: _Key) -> Merge | None:
        name, bucket = key
        states = self._store.snapshot.arrangements.get(name, {})
        return merge_owed(name, states, bucket, self._store.settings.buckets)

    def _try_again(self, keys: Collection[_Key]) -> None:
        """Note that merges that failed are still owed; whoever asks for them now sees their errors."""
        with self._changed:
            self._owed |= {key for key in keys if key in self._trouble} - self._busy

    def _claim(self, wanted: Callable[[_Key], bool]) -> Merge | None:
        """Take a merge that is owed and that nobody else does: the smallest, which is soonest done."""
        with self._changed:
            found: dict[_Key, Merge] = {}
            for key in [key for key in self._owed if wanted(key)]:
                merge = self._merge(key)
                if merge is None:
                    self._owed.discard(key)
                else:
                    found[key] = merge
            if not found:
                return None
            key = min(found, key=lambda key: found[key].bytes)
            self._owed.discard(key)
            self._busy.add(key)
            return found[key]

    # -- doing it -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Do what is owed, and end; the next commit that owes something starts a new thread."""
        can_commit = True
        while not self._is_over(can_commit):
            merge = self._claim(lambda key: True)
            try:
                if merge is not None:
                    self._do(merge)
                # While there is more to do, a step that is running may commit what is done.
                self._commit_beside_steps(patient=merge is None)
            except _Stopped:
                pass
            except Exception as error:
                can_commit = merge is not None
                name = "tables or views" if merge is None else merge.arrangement
                _LOG.warning("runs of %s could not be merged; a later step tries again: %s", name, error)

    def _is_over(self, can_commit: bool) -> bool:
        """Whether the thread may end, which it then does: nothing is owed, and what was merged is committed."""
        with self._changed:
            is_over = self._is_stopped or not (self._owed or (can_commit and self._store.has_replacements))
            if is_over:
                self._thread = None
                self._changed.notify_all()
            return is_over

    def _advance(self, wanted: Callable[[_Key], bool]) -> bool:
        """Do or await a merge, and commit what has been merged; returns whether there was anything to do."""
        merge = self._claim(wanted)
        if merge is not None:
            self._do(merge)
        with self._changed:
            is_busy = bool(self._busy)
            if merge is None and is_busy and not self._store.has_replacements:
                self._changed.wait(_PATIENCE)
        self._commit()
        return merge is not None or is_busy

    def _do(self, merge: Merge) -> None:
        """Merge, and leave the result to the next commit."""
        key, store = (merge.arrangement, merge.bucket), self._store
        try:
            buckets = store.settings.buckets  # first: with another number, no run is there any more
            states = store.snapshot.arrangements.get(merge.arrangement, {})
            read = {run for state in states.values() for run in state.runs} if merge.moves else set(merge.runs)
            with store.merging(read) as names:
                now = store.snapshot.arrangements.get(merge.arrangement, {})
                kind = self._kind(merge.arrangement)
                if kind is None or not read <= {run for state in now.values() for run in state.runs}:
                    self._done(key, again=kind is not None)  # a step was faster
                    return
                writer = partial(RunWriter, store.location, store.snapshot.version + 1, fsync=store.fsync, names=names)
                merging = Merging(store.location, buckets, writer, self._check)
                store.replace(merging.run(merge, kind, states))
        except BaseException as error:
            self._done(key)
            if not isinstance(error, _Stopped):
                with self._changed:
                    self._trouble[key] = error
            raise
        with self._changed:
            self._trouble.pop(key, None)
            self._changed.notify_all()

    def _done(self, key: _Key, *, again: bool = False) -> None:
        """Note that a merge led to nothing."""
        with self._changed:
            self._busy.discard(key)
            self._changed.notify_all()
        if again:
            self._look({key[0]: {key[1]: _NONE}})

    def _check(self) -> None:
        if self._is_stopped:
            raise _Stopped

    def _commit_beside_steps(self, *, patient: bool) -> None:
        """Put merged runs in their places; while a step is running, that is left to the step, or awaited."""
        while self._store.has_replacements:
            if self._lock.acquire(timeout=_PATIENCE if patient else 0):
                try:
                    self._commit()
                finally:
                    self._lock.release()
            elif not patient:
                return
            self._check()

    def _commit(self) -> None:
        """Put merged runs in their places; the caller holds the lock."""
        if self._store.has_replacements:
            self._store.commit(self._store.next_record())


def _put(keys: set[_Key], key: _Key, belongs: bool) -> None:
    (keys.add if belongs else keys.discard)(key)
