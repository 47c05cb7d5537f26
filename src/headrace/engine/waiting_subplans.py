"""Shared subplans that wait with the views that read them: when they are brought up to date, and what that took.

A subplan waits if all of its readers have goals. Whoever is due first brings it up to date; what it gives then waits at
the operators of all its readers, each of which takes it when its own time has come. No reader sees anything of that, so
it is part of the step whatever becomes of the view that asked for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import PlannedView
from headrace.engine.pacing import Pacing
from headrace.engine.store import Store
from headrace.operators.tree_view import TreeView
from headrace.runtime.pending import waiting_rows
from headrace.runtime.program import BucketResult, Program

if TYPE_CHECKING:
    from headrace.engine.goals import Moment


class WaitingSubplans:
    """The shared subplans of one engine that wait.

    Parameters
    ----------
    run : flushes what a program names.
    """

    def __init__(
        self, catalogue: Catalogue, store: Store, pacing: Pacing, run: Callable[[Program], BucketResult]
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._pacing = pacing
        self._run = run

    def of(self, view: PlannedView) -> list[str]:
        """The shared subplans that wait with a view."""
        kernel = view.kernel
        names = dict.fromkeys(one.by for one in kernel.given.values()) if isinstance(kernel, TreeView) else {}
        return [name for name in names if self._catalogue.shared_waits(name)]

    def bring(self, view: PlannedView, paths: Collection[str], moment: Moment) -> tuple[float, float]:
        """Bring the subplans up to date that are among some paths of a view, or give rows to them.

        Returns the CPU seconds that it took, and how many of these other threads and processes have spent.
        """
        kernel = view.kernel
        if not isinstance(kernel, TreeView) or not kernel.given:
            return 0.0, 0.0
        read = {table for path in kernel.paths if path.name in paths for table in path.tables}
        names = dict.fromkeys(one.by for one in kernel.given.values() if one.by in read or one.by in paths)
        names = {name: None for name in names if name in self._catalogue.subplans}  # answers are up to date
        spent = [self.flush(name, moment) for name in names]
        return sum(cpu for cpu, _ in spent), sum(elsewhere for _, elsewhere in spent)

    def flush(self, name: str, moment: Moment) -> tuple[float, float]:
        """Let a subplan take all that waits for it; what it gives waits at its readers. Returns the same as `bring`."""
        program = moment.shared(name, moment.changed)
        if not waiting_rows(program, name, program.flushes[name].flushed):
            return 0.0, 0.0
        start = time.thread_time()
        done = self._run(program)
        moment.state.add(done)
        spent = time.thread_time() - start + done.elsewhere
        kernel, before = self._catalogue.shared_kernel(name), self._store.snapshot.arrangements
        self._pacing.saw_below(name, kernel, before, done.traffic.get(name, {}), spent)
        self._pacing.given(done.traffic)
        return spent, done.elsewhere
