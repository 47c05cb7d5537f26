"""What an operator is: it takes change batches, holds them until `flush`, and then gives the changes of its result.

A *layout* lives as long as the view: it says what an operator keeps, and how changes reach it. One operator object
lives for one step in one bucket. It reads its arrangements as they were before the step and says
which runs to add to them. `push` and `flush` are separate so that the caller decides when work is done: all of a step
at once today, and some parts of a plan less often than others tomorrow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from headrace.operators.changes import Changes
from headrace.operators.delivery import Delivery, Destination
from headrace.operators.kernel import Evaluated, Reduced, State, ViewChange
from headrace.operators.placement import Places
from headrace.relation import kernels
from headrace.relation.arrangement import growth
from headrace.relation.coded import Coded, coded
from headrace.relation.kernels import Positions, Words
from headrace.relation.residence import Lead
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, Entries, RunSet
from headrace.relation.types import sql_type
from headrace.rings import COUNT, Group


class OperatorLayout(ABC):
    """How one operator of a view is kept: all that the view needs to know of it.

    Parts have names that begin with the name of the operator, so that those of several operators do not meet.
    """

    @property
    def output_keys(self) -> Sequence[str]:
        """The fields of the output that tell an update from an insertion and a deletion."""
        return ()

    @property
    def first(self) -> Mapping[str, Run]:
        """What the operator receives before its first row, by part."""
        return {}

    @property
    @abstractmethod
    def arrangements(self) -> Mapping[str, Group]:
        """The parts that are kept, with the ring of their payloads."""

    @property
    @abstractmethod
    def accepts(self) -> Sequence[str]:
        """The parts under which changes arrive."""

    @abstractmethod
    def deliver(self, side: int, changes: Changes, to: Destination) -> Iterator[Delivery]:
        """Split the changes of a port into runs, each with the bucket and the part that it goes to."""

    @abstractmethod
    def operator(self, state: State) -> Operator:
        """Make the operator of one bucket for one step."""

    def shared(self, everywhere: Places) -> Collection[str]:
        """The parts that are the same in every bucket, if these sides are in every bucket."""
        return ()

    def decides(self, part: str, places: Places) -> Lead | None:
        """The function that gives the word which decides the bucket of an entry: a hash of the fields at `places`.

        None if the fields cannot be read from the entries of a part: the view is then kept bucket by bucket.
        """
        return None

    def searched_by(self, part: str, places: Places) -> bool:
        """Whether all fields at `places` are among the keys by which a part is searched."""
        return True

    def side_of(self, part: str) -> int:
        """The side whose rows a part keeps."""
        return 0

    def come_again(self, part: str, run: Run) -> Run:
        """Entries of a part as changes that would lead to them."""
        return run

    def refused(self, rows: Evaluated) -> dict[int, str]:
        """The rows of a table that this operator cannot take, with the reason."""
        return {}


class Operator(ABC):
    """One operator in one bucket in one step."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.runs: dict[str, Run] = {}  # what is to be added to each arrangement
        self.live: dict[str, int] = {}  # by how many live entries each arrangement grows
        self.taken = [ViewChange(), ViewChange()]  # by side
        self.reduced = Reduced()  # of an operator that keeps the answer of the view: how that answer changed
        self._held: dict[str, list[Run]] = defaultdict(list)

    def push(self, part: str, changes: Run) -> None:
        """Take changes in, by the part of the operator that they are for."""
        self._held[part].append(changes)

    @abstractmethod
    def flush(self) -> Changes | None:
        """Add the pushed changes to the state, and give the changes of the operator's result."""

    def absorb(self) -> None:
        """Add the pushed changes to the state, where nobody reads what they change in the operator's result."""
        self.flush()

    def before(self, part: str) -> Sequence[AnyRun]:
        """An arrangement as it was before the step; empty if the arrangement is not kept."""
        return self.state.get(part, ())

    def pushed(self, part: str) -> Run | None:
        """The sum of all changes pushed for a part; None if there are none, or if they cancel."""
        runs = self._held.get(part)
        merged = merge(COUNT, runs) if runs else None
        return merged if merged is not None and merged.rows else None

    def keep(self, part: str, change: Run | None) -> None:
        """Add a change to an arrangement of rows, if that arrangement is kept."""
        if change is not None and part in self.state:
            self.runs[part] = change
            self.live[part] = growth(COUNT, self.state[part], change)


def passed(run: Run | None, key_width: int) -> ViewChange:
    """Count the changes in a run; a deleted and an inserted row with the same key are one update."""
    if run is None or not run.rows:
        return ViewChange()
    diff = run.payload[0].astype(np.int64)
    came, went = np.maximum(diff, 0), np.maximum(-diff, 0)
    pairs = 0
    if key_width and came.any() and went.any():
        heads = np.ones(run.rows, bool)
        heads[1:] = (run.words[:key_width, 1:] != run.words[:key_width, :-1]).any(axis=0)
        starts = np.flatnonzero(heads)
        pairs = int(np.minimum(np.add.reduceat(came, starts), np.add.reduceat(went, starts)).sum())
    return ViewChange(int(came.sum()) - pairs, int(went.sum()) - pairs, pairs)


def given(changes: Changes | None, keys: Sequence[str] = ()) -> ViewChange:
    """Count the changes that an operator gives; rows that agree on the columns `keys` have the same key."""
    if changes is None:
        return ViewChange()
    came, went = int(changes.diff[changes.diff > 0].sum()), int(-changes.diff[changes.diff < 0].sum())
    pairs = 0
    if keys and came and went:
        words = _words_of(changes, keys)
        group_of, first = np.empty(changes.rows, np.int64), np.empty(changes.rows, np.int64)
        groups = kernels.group_hashed(words, group_of, first)
        (there,) = COUNT.sum_by((np.maximum(changes.diff, 0),), group_of, groups)
        (gone,) = COUNT.sum_by((np.maximum(-changes.diff, 0),), group_of, groups)
        pairs = int(np.minimum(there, gone).sum())
    return ViewChange(came - pairs, went - pairs, pairs)


def _words_of(changes: Changes, names: Sequence[str]) -> Words:
    """Words that are equal where the values of some columns are."""
    parts = []
    for name in names:
        column = changes.columns[name]
        kind = column.type if isinstance(column, Coded) else sql_type(column.type)
        found = coded(column, kind, seed=0)
        parts.append(found.words)
        if found.missing is not None:
            parts.append(found.missing.astype(np.uint64)[None])
    return np.concatenate(parts)


def loaded(runs: RunSet, found: Entries) -> tuple[Run, Positions]:
    """Load entries; gives their columns as a run in memory, and the position of each entry there.

    Of runs in files, only these entries are copied and verified, and those that several probes have found only once.
    """
    if len(runs) == 1 and isinstance(runs[0], Run):
        return runs[0], found.positions
    new = np.ones(len(found), bool)
    new[1:] = (found.runs[1:] != found.runs[:-1]) | (found.positions[1:] != found.positions[:-1])
    return runs.take(found.take(np.flatnonzero(new))), np.cumsum(new) - 1
