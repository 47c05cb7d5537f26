"""Merging views: a new view starts alone, and comes to share subplans with others while steps go on.

Where few rows have to be read, that happens at once. Otherwise the view is noted in the log as one that has still to be
merged, and a thread does it when no more views are being made. It fills the new subplan from a snapshot, without the
lock that steps need, catches up with the steps that were committed meanwhile, and takes the lock only for the last of
them and for the commit. What goes wrong changes nothing; it is reported, and tried again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from headrace.engine.catching_up import changed_tables
from headrace.engine.definition import PlannedView
from headrace.engine.maintenance import Maintenance
from headrace.engine.moving import Moves
from headrace.engine.opening import AUTO, OFF
from headrace.engine.sharing import Change, Sharing
from headrace.engine.store import Store
from headrace.errors import HeadraceError, StepFailedError
from headrace.runtime.log import Snapshot
from headrace.runtime.record import Arrangements
from headrace.thrifty.share.apart import Apart

FEW_ROWS = 50_000  # of tables: filling a subplan from so many takes less time than anybody notices
GROWN = 10  # times as many rows in the tables as before: conditions may be compared by rows that there are now
ENOUGH = 50_000  # rows that have come before tables count as grown
QUIET = 1.0  # seconds without a new view until views are merged, so that those made together are merged together
_LITTLE = 5_000  # rows of tables that are caught up with while steps wait
_ROUNDS = 8  # of catching up beside steps
_MOST = 2_000_000  # rows that are caught up with at once; beyond this, filling anew costs less
_ATTEMPTS = 3  # beside steps; the next one makes steps wait
_PATIENCE = 0.05  # seconds until a thread that waits for a step looks whether it is stopped
_PAUSE = 5.0  # seconds after an error
_TRIES = 3  # after errors; then the next view that comes, or the next engine, tries again
_LOG = logging.getLogger("headrace")


class _Stopped(Exception):
    """The engine is being closed."""


class _StartOver(Exception):
    """Views came or went, or too much has changed since the filling began."""


class MergingViews:
    """The merges of one engine's views.

    Parameters
    ----------
    lock : whoever commits holds it.
    merged : is called, with the lock held, after views have been merged.
    """

    def __init__(
        self,
        sharing: Sharing,
        store: Store,
        maintenance: Maintenance,
        lock: threading.RLock,
        merged: Callable[[], None],
    ) -> None:
        self._sharing = sharing
        self._store = store
        self._maintenance = maintenance
        self._lock = lock
        self._merged = merged
        self._changed = threading.Condition()  # guards all that follows
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._is_filling = False
        self._being_made = 0
        self._last_made = 0.0
        self._awaited = 0  # callers of `settle`
        self._trouble: Exception | None = None
        self._attempts = 0  # that had to start over; only the thread looks at them
        self._compared()

    # -- what is due ------------------------------------------------------------------------------------------------

    @contextmanager
    def making(self) -> Iterator[None]:
        """Merge nothing while a view is being made: it may be merged together with the views before it."""
        with self._changed:
            self._being_made += 1
        try:
            yield
        finally:
            with self._changed:
                self._being_made -= 1
                self._last_made = time.monotonic()
                self._changed.notify_all()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Merge nothing, once what is being filled is done; the caller does not hold the lock."""
        with self.making():
            with self._changed:
                self._changed.wait_for(lambda: not self._is_filling)
            yield

    def postponed(self, name: str, view: PlannedView) -> list[str] | None:
        """The views that have to be merged once there is this one too; None if the new view is merged at once."""
        if self._sharing.mode == OFF or not self._sharing.may_share(view) or self._rows(view.tables) <= FEW_ROWS:
            return None
        if not self._sharing.others(view):
            return None
        return [*self._store.snapshot.unmerged, name]

    def update(self, fresh: Collection[str], apart: Sequence[Apart] | None = None) -> None:
        """Let views share what they can after some have come, gone or changed; the caller holds the lock.

        Parameters
        ----------
        apart : what is kept apart from now on; as it is, if nothing is said.
        """
        self._compared()
        change = self._sharing.prepared(fresh=fresh, apart=apart)
        if change is None:
            if apart is not None:
                self._sharing.remember(apart)
            return
        if self._rows(_tables(change.moves)) <= FEW_ROWS:
            self._sharing.make(change)
            return
        members = {view for name, one in change.after.items() if one != change.before.get(name) for view in one.views}
        due = dict.fromkeys([*self._store.snapshot.unmerged, *members])
        unshared = [one.to_json() for one in change.apart]
        self._store.commit(self._store.next_record(unmerged=list(due), unshared=unshared))
        self.wake()

    def grown(self, rows: int) -> None:
        """Compare views again if tables have grown a lot since views were last compared; the caller holds the lock.

        Over empty tables, nothing tells how many rows different conditions have in common, and nothing is shared that
        differs in them.

        Parameters
        ----------
        rows : how many rows a step has changed.
        """
        self._rows_since += rows
        if self._sharing.mode != AUTO or self._rows_since < max(ENOUGH, (GROWN - 1) * self._rows_compared):
            return
        self._compared()
        able = self._sharing.able
        due = dict.fromkeys([*self._store.snapshot.unmerged, *able])
        if len(able) > 1:
            self._store.commit(self._store.next_record(unmerged=list(due)))
            self.wake()

    def _compared(self) -> None:
        """Note that views are compared by the rows that there are now; the caller holds the lock."""
        self._rows_compared, self._rows_since = self._rows(self._sharing.tables), 0

    def _rows(self, tables: Collection[str]) -> int:
        return sum(self._store.latest.rows(table) for table in tables)

    def status(self) -> dict[str, Any]:
        """Whether views are being merged right now, and what went wrong; empty if there is nothing to say."""
        with self._changed:
            found: dict[str, Any] = {"under_way": True} if self._is_filling else {}
            if self._trouble is not None:
                found["failed"] = str(self._trouble)
            return {"merging": found} if found else {}

    # -- when it is done ----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """See that views that have to be merged are merged."""
        with self._changed:
            if self._thread is None and not self._is_stopped and self._store.snapshot.unmerged:
                self._thread = threading.Thread(target=self._run, name="headrace-merging", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle(self) -> None:
        """Wait until nothing has to be merged any more; raises what went wrong. The caller does not hold the lock."""
        with self._changed:
            self._awaited += 1
        try:
            self.wake()
            with self._changed:
                self._changed.wait_for(lambda: self._thread is None)
                trouble, self._trouble = self._trouble, None
        finally:
            with self._changed:
                self._awaited -= 1
        if isinstance(trouble, HeadraceError):
            raise trouble
        if trouble is not None:
            raise StepFailedError(
                f"views could not be merged: {trouble}", way_out="they stay alone until settle() is called again"
            ) from trouble

    def stop(self) -> None:
        """Merge nothing more; returns when the operators that are being filled are done. The next engine merges."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        failures = 0
        while self._is_due(failures):
            try:
                self._merge()
                failures = 0
                with self._changed:
                    self._trouble = None
            except _Stopped:
                pass
            except Exception as error:
                failures += 1
                _LOG.warning("views could not be merged, and stay alone for now: %s", error)
                with self._changed:
                    self._trouble = error
                    self._changed.wait_for(lambda: self._is_stopped or self._awaited > 0, _PAUSE)

    def _is_due(self, failures: int) -> bool:
        """Wait until views should be merged; False if the thread may end, which it then does."""
        with self._changed:
            while True:
                given_up = failures >= _TRIES or (failures and self._awaited)
                if self._is_stopped or given_up or not self._store.snapshot.unmerged:
                    self._thread = None
                    self._changed.notify_all()
                    return False
                wait = self._last_made + QUIET - time.monotonic()
                if not self._being_made and (self._awaited or wait <= 0):
                    return True
                self._changed.wait(None if self._being_made else wait)

    # -- how it is done -----------------------------------------------------------------------------------------------

    def _merge(self) -> None:
        """Merge all views that are due, or start over later."""
        with ExitStack() as stack:
            with self._locked():
                names = list(self._store.snapshot.unmerged)
                change = self._sharing.prepared(fresh=names)
                beside = change is not None and all(map(self._maintenance.states.can_fill_beside, change.moves.filled))
                self._compared()
                if change is None or not change.moves.filled or not beside or self._attempts == _ATTEMPTS:
                    self._make(change, names)
                    self._attempts = 0
                    return
                start = stack.enter_context(self._store.reader()).snapshot
            files = stack.enter_context(self._store.merging(()))
            self._attempts += 1
            with suppress(_StartOver):
                self._make_beside(change, names, start, files, stack)
                self._attempts = 0

    def _make(self, change: Change | None, names: list[str]) -> None:
        """Merge views while steps wait."""
        if change is None:
            left = [name for name in self._store.snapshot.unmerged if name not in names]
            self._store.commit(self._store.next_record(unmerged=left))
            return
        self._sharing.make(change, names)
        self._merged()

    def _make_beside(
        self, change: Change, names: list[str], start: Snapshot, files: set[str], stack: ExitStack
    ) -> None:
        """Merge views while steps go on, which wait only at the end."""
        with self._changed:
            self._is_filling = True
        try:
            filled: Arrangements = {}
            for one in change.moves.filled:
                self._check()
                filled |= self._maintenance.states.fill_parts(one, start, files)
            for _ in range(_ROUNDS):
                self._check()
                if _behind(change.moves, start, self._store.snapshot) <= _LITTLE:
                    break
                now = stack.enter_context(self._store.reader()).snapshot
                filled = self._caught_up(change.moves, filled, start, now, files)
                start = now
            with self._locked():
                self._finish(change, names, filled, start, files)
        finally:
            with self._changed:
                self._is_filling = False
                self._changed.notify_all()

    def _finish(self, change: Change, names: list[str], filled: Arrangements, start: Snapshot, files: set[str]) -> None:
        """Catch up with the last steps, and commit; the caller holds the lock."""
        renewed = self._sharing.renewed(change)
        if renewed is None:
            raise _StartOver
        try:
            filled = self._caught_up(renewed.moves, filled, start, self._store.snapshot, files)
            self._sharing.commit(renewed, filled, names)
        except _StartOver:
            raise
        except BaseException:
            self._store.roll_back()
            raise
        self._merged()

    def _caught_up(
        self, moves: Moves, filled: Arrangements, start: Snapshot, now: Snapshot, files: set[str]
    ) -> Arrangements:
        if _behind(moves, start, now) > _MOST or start.settings != now.settings:  # other buckets
            raise _StartOver
        out: Arrangements = {}
        for one in moves.filled:
            own = {name: states for name, states in filled.items() if name in one.arrangements}
            out |= self._maintenance.states.catch_up(one, own, start, now, files)
        return out

    def _check(self) -> None:
        if self._is_stopped:
            raise _Stopped

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that steps need."""
        while not self._lock.acquire(timeout=_PATIENCE):
            self._check()
        try:
            self._check()
            yield
        finally:
            self._lock.release()


def _tables(moves: Moves) -> set[str]:
    """The tables that have to be read."""
    return {side.table for one in moves.filled for side in one.kernel.alone.sides}


def _behind(moves: Moves, start: Snapshot, now: Snapshot) -> int:
    """How many rows of tables have to be caught up with."""
    changed = {table: one for w in moves.filled for table, one in changed_tables(w.kernel, start, now).items()}
    return sum(one.rows for one in changed.values())
