"""Ways to keep a view under a budget, each as something that takes changes and is timed.

headrace chooses by the dynamic program, *recycler* caches by benefit, and *everything* keeps all state of the same
operators. *recursive* keeps the higher-order views of DBToaster: for each table, the join of all others in connected
pieces, and so on for each piece. *rebatch* keeps nothing and fills the view anew from its tables after each change, by
Headrace's own filling. All of them store the rows of the change in their tables, and that time counts alike.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.bench.keep.workload import Loaded
from headrace.bench.tpch.data import Changes
from headrace.engine.engine import Engine
from headrace.errors import UnsupportedSQLError
from headrace.operators.layout import GROUPS
from headrace.operators.tree_view import TreeView
from headrace.thrifty.keep.actions import Op
from headrace.thrifty.keep.policies import POLICIES
from headrace.thrifty.keep.selection import Key

HEADRACE, RECYCLER, EVERYTHING, REBATCH = "headrace", "recycler", "everything", "rebatch"
RECURSIVE = "recursive"
PLENTY = 10**15
_POLICY = {HEADRACE: "program", RECYCLER: "recycler", EVERYTHING: "everything"}
_VIEW = "v"
_ANSWER = (GROUPS, "v0")  # of a view tree: its groups, and the root that they follow from


@dataclass(frozen=True)
class Taken:
    """What a change took: seconds, and CPU seconds of this process, in which all kernels run here."""

    seconds: float
    cpu: float


@dataclass
class Kept:
    """A view in an engine that follows one approach."""

    approach: str
    engine: Engine
    sql: str
    first_seconds: float = 0.0
    choosing: list[float] = field(default_factory=list)  # seconds of each choice of what is kept

    def begin(self, budget: int = PLENTY) -> None:
        """Make the view over the rows that are there."""
        start = time.perf_counter()
        if self.approach == REBATCH:
            self._fill()
        elif self.approach == RECURSIVE:
            self.engine.view(_VIEW, self.sql, strategy=RECURSIVE)
        else:
            self.engine._maintenance.memory.policy = self._chosen
            self.engine.memory_budget = budget
            self.engine.view(_VIEW, self.sql, strategy="operators")
        self.first_seconds = time.perf_counter() - start

    def step(self, changes: Changes) -> Taken:
        """Take a change; returns what it took."""
        start, cpu = time.perf_counter(), time.process_time()
        self.engine.apply(changes)
        if self.approach == REBATCH:
            self._fill()
        taken = Taken(time.perf_counter() - start, time.process_time() - cpu)
        self.engine.compact()  # merges that the step owes are done by all, outside of the time
        return taken

    def _chosen(self, plans: Sequence[Op], budget: int) -> frozenset[Key]:
        """Choose by the policy of the approach, and take the time of it."""
        start = time.perf_counter()
        kept = POLICIES[_POLICY[self.approach]](plans, budget)
        if plans:
            self.choosing.append(time.perf_counter() - start)
        return kept

    def _fill(self) -> None:
        """Compute the answer from the tables; its joins keep nothing, because nothing is said to change."""
        planned = self._planned
        kernel = planned.kernel
        assert isinstance(kernel, TreeView)
        still = replace(planned, kernel=replace(kernel, static=frozenset(kernel.tree.tables)))
        self.engine._maintenance.states.fill(_VIEW, still)
        self.engine._store.remove_orphans()

    @property
    def _planned(self) -> Any:
        if not hasattr(self, "_plan"):
            from headrace.engine.requests import view_request

            request = view_request(
                _VIEW, self.sql, strategy="operators", refresh="auto", order=None, partition=None, final=False
            )
            self._plan = self.engine._definitions.plan(_VIEW, request)
        return self._plan

    @property
    def kept_bytes(self) -> int:
        """The bytes of state that wait for the next change, besides tables and the answer."""
        if self.approach == REBATCH:
            return 0
        if self.approach == RECURSIVE:
            parts = self.engine.views[_VIEW].planned.kernel.arrangements
            return self.engine._store.latest.bytes(_VIEW, [part for part in parts if part not in _ANSWER])
        return int(self.engine.status()["memory"]["kept_bytes"])

    @property
    def answer(self) -> pa.Table:
        """The answer now; rebatch does not store what it fills, so it fills a view once more."""
        if self.approach == REBATCH:
            self.engine.view(_VIEW, self.sql, strategy="operators")
        return self.engine.views[_VIEW].to_arrow()


@contextmanager
def keeping(loaded: Loaded, approach: str, sql: str, budget: int = PLENTY) -> Iterator[Kept]:
    """A view by one approach, over the rows of a location."""
    with loaded.opened() as engine:
        kept = Kept(approach, engine, sql)
        kept.begin(budget)
        yield kept


Cases = Mapping[str, tuple[str, int]]
"""Per name: an approach and its budget."""


@contextmanager
def side_by_side(loaded: Loaded, sql: str, cases: Cases) -> Iterator[dict[str, Kept]]:
    """A view by several approaches at once, so that what else the machine does meanwhile meets all of them alike."""
    with ExitStack() as opened:
        found = {}
        for name, (approach, budget) in cases.items():
            # Higher-order views are for joins on equal columns, and not all queries are such.
            with suppress(UnsupportedSQLError) if approach == RECURSIVE else nullcontext():
                found[name] = opened.enter_context(keeping(loaded, approach, sql, budget))
        yield found


def played(kept: Mapping[str, Kept], changes: Sequence[Changes]) -> dict[str, list[Taken]]:
    """Let all approaches take the same changes, one change after the other; the one that begins goes round."""
    taken: dict[str, list[Taken]] = {name: [] for name in kept}
    names = list(kept)
    for number, change in enumerate(changes):
        at = number % len(names)
        for name in (*names[at:], *names[:at]):
            taken[name].append(kept[name].step(change))
    return taken
