"""DISTINCT values: which values are new to a group or have left it, found in the bucket that holds the state.

The number of distinct values of a group is not a sum over its rows, but it is a sum over its values: a value adds one
when its count becomes positive, and subtracts one when its count is no longer positive. So the old counts of the
changed values are looked up in the ordered arrangement that MIN and MAX use, and the difference goes into the payload
of the group. SUM(DISTINCT x) adds the value itself in the same way, and STDDEV(DISTINCT x) its square, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.operators.asked import SUMS
from headrace.operators.delta import lift_values
from headrace.operators.kernel import State
from headrace.operators.layout import Behind, ViewLayout
from headrace.relation.keys import values_of_words
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.rings import COUNT

_SUMMED = {f"distinct_{name}": power for power, name in enumerate(SUMS, 1)} | {"distinct_parity": 1}


@dataclass(frozen=True)
class ChangedValues:
    """The changed values of one arrangement: a run of (group, value) -> count, and the counts before it."""

    delta: Run
    before: NDArray[np.int64]

    @property
    def after(self) -> NDArray[np.int64]:
        total: NDArray[np.int64] = self.before + self.delta.payload[0]
        return total

    @property
    def growth(self) -> int:
        """By how many live entries the arrangement grows (live, not stored)."""
        return int((self.after != 0).sum()) - int((self.before != 0).sum())

    @property
    def came(self) -> NDArray[np.int64]:
        """Per value: +1 if it is new to its group, -1 if it has left its group, else 0."""
        return (self.after > 0).astype(np.int64) - (self.before > 0)


def changed_values(layout: ViewLayout, state: State, incoming: Mapping[str, Sequence[Run]]) -> dict[str, ChangedValues]:
    """Look up, per arrangement with changed values, how often each of them occurred before the step."""
    found = {}
    for name in layout.values:
        arrived = incoming.get(name)
        delta = merge(COUNT, list(arrived)) if arrived else None
        if delta is not None and delta.rows:
            found[name] = ChangedValues(delta, _counts(state[name], delta))
    return found


def with_distinct(layout: ViewLayout, touched: Run, values: Mapping[str, ChangedValues]) -> Run:
    """Add the changes of COUNT(DISTINCT) and SUM(DISTINCT) to the payloads of the touched groups."""
    parts = layout.ring.split(touched.payload)
    for name, changed in values.items():
        arranged = layout.values[name]
        first, *others = arranged.arguments
        counted = layout.component("distinct", first, tuple(others))
        if counted is None or arranged.behind not in (Behind.VALUE, Behind.COMBINATION):
            continue
        group, beyond = touched.find(np.ascontiguousarray(changed.delta.words[: layout.keys.width]))
        assert (group < beyond).all(), "a changed value comes from a changed row, and that has touched its group"
        parts[counted] = COUNT.sum_by((changed.came,), group, touched.rows)
        summed = [] if others else [(power, layout.component(role, first)) for role, power in _SUMMED.items()]
        if not any(at is not None for _, at in summed):
            continue
        kind = layout.plan.arguments[first].type
        numbers = values_of_words(changed.delta.words[layout.keys.width :], kind, None)
        for power, at in summed:
            if at is not None:
                ring = layout.components[at].ring
                lifted = lift_values(ring, numbers, kind, changed.came, power=power)
                parts[at] = ring.sum_by(lifted, group, touched.rows)
    return Run(touched.words, layout.ring.join(parts), touched.values)


def _counts(runs: Sequence[AnyRun], delta: Run) -> NDArray[np.int64]:
    before = np.zeros(delta.rows, np.int64)
    for some, probes, possible in as_set(runs).fitted(delta.words):
        before[possible] += some.lookup(COUNT, probes)[0]
    return before
