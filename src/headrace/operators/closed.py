"""Final groups: windows of time that no row can change any more leave the state, and stay readable as values.

One of the keys of a group is a time; the group is over once that time is not after a given moment. A closed group needs
no arrangement of its values: MIN, MAX and what else is looked up there is looked up once, when it closes, and stored
beside its payload.
Apart from that, closing only takes entries out of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.finish import finish, group_columns
from headrace.operators.kernel import State
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.operators.looked_up import as_sets, look_up
from headrace.relation.arrangement import alive, pieces
from headrace.relation.kernels import Words
from headrace.relation.keys import fixed_values, validity
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun
from headrace.relation.schema import STEP


@dataclass(frozen=True)
class Closing:
    """Which groups of a view are over: those whose key, a time in microseconds, is not after a moment."""

    layout: ViewLayout
    key: int

    def over(self, words: Words, until: int) -> NDArray[np.bool_]:
        """Tell which entries belong to groups that are over; a group without a time never is."""
        column = self.layout.keys.decode(np.ascontiguousarray(words[: self.layout.keys.width]))[self.key]
        assert column is not None
        times = fixed_values(column, self.layout.plan.keys[self.key].type)
        out: NDArray[np.bool_] = validity(column) & (times <= until)  # type: ignore[operator]
        return out


@dataclass(frozen=True)
class Closed:
    """What closing does to one bucket: the groups that became final, and the rest of each run that held some."""

    groups: Run
    rests: dict[str, dict[int, Run]]  # by arrangement, and by the position of the run in it
    gone: dict[str, int]  # per arrangement, how many live entries it lost (live, not stored)


def close(closing: Closing, state: State, until: int, step: int) -> Closed | None:
    """Close the groups of a bucket that are over; None if there are none."""
    layout = closing.layout
    leaving: dict[str, list[Run]] = {}
    rests: dict[str, dict[int, Run]] = {}
    for part in layout.arrangements:
        leaving[part], rests[part] = [], {}
        for i, run in enumerate(state[part]):
            run.check()
            over = closing.over(run.words, until)
            if over.any():
                leaving[part].append(run.take(np.flatnonzero(over)))
                rests[part][i] = run.take(np.flatnonzero(~over))
    if not leaving[GROUPS]:
        return None
    sums = {part: merge(layout.arrangements[part], runs) for part, runs in leaving.items() if runs}
    gone = {part: int(alive(run.payload).sum()) for part, run in sums.items()}
    groups = sums[GROUPS].take(alive(sums[GROUPS].payload))
    values = dict(groups.values) | look_up(layout, as_sets(state), groups.words, groups.payload)
    values[STEP] = pa.array(np.full(groups.rows, step, np.int64))
    return Closed(Run(groups.words, groups.payload, values), rests, gone)


def read_closed(layout: ViewLayout, runs: Sequence[AnyRun], rows: int, since: int = 0) -> Iterator[pa.Table]:
    """Read the groups that steps after `since` closed, about `rows` at a time: k0.., a0.. and the closing step."""
    for run in pieces(layout.ring, runs, rows):
        if since:
            run = run.take(np.flatnonzero(run.values[STEP].to_numpy() > since))
        found = {name: run.values[name] for name in layout.looked_up}
        groups = finish(layout, group_columns(layout, run), run.payload, found)
        yield groups.append_column(STEP, run.values[STEP])
