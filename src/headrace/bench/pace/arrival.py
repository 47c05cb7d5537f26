"""How the rows of TPC-H come until the trigger: in equal parts or in bursts, and some of them are deleted again.

Paces are due by rows. So a burst may pass several moments at which a path would have been flushed, and the path is
flushed once; and what comes in the step of the trigger is left to the trigger, whatever the paces are. That is why
there are two kinds of bursts: `BURSTS` ends with one, and `CALM` with the small parts between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise

import pyarrow as pa

from headrace.bench.pace.deletes import changes, deletable, with_deletes

EVEN, BURSTS, CALM = "even", "bursts", "bursts, then calm"
_BURSTS = 5
_SMALL = Fraction(1, 10)  # of an equal part: how much comes in each part between the bursts


@dataclass(frozen=True)
class Stream:
    """Steps of changes by table, and the rows that are there after the last one."""

    steps: Sequence[Mapping[str, pa.Table]]
    left: Mapping[str, pa.Table]

    @property
    def changed(self) -> int:
        """Changed rows of all steps: a row that comes and goes counts twice."""
        return sum(table.num_rows for step in self.steps for table in step.values())


@dataclass(frozen=True)
class Arrival:
    """How rows come.

    Parameters
    ----------
    kind : `EVEN`, `BURSTS` or `CALM`.
    parts : steps in which the rows come.
    deletes : earlier rows that a step deletes for each row that it inserts.
    """

    kind: str
    parts: int
    deletes: float = 0.0

    def ends(self) -> list[Fraction]:
        """Which share of all rows has come after each step."""
        even = Fraction(1, self.parts)
        if self.kind == EVEN or self.parts < 2:
            return [even * number for number in range(1, self.parts + 1)]
        bursts = min(_BURSTS, self.parts // 2)
        ends = [self.parts * number // bursts for number in range(bursts + 1)]
        sizes = []
        for first, end in pairwise(ends):
            small = [_SMALL * even] * (end - first - 1)
            burst = Fraction(1, bursts) - sum(small)
            sizes += [burst, *small] if self.kind == CALM else [*small, burst]
        return list(accumulate(sizes))

    def stream(self, tables: Mapping[str, pa.Table]) -> Stream:
        """The changes of some tables, all of which come side by side."""
        shares, steps, left = self.ends(), [dict[str, pa.Table]() for _ in range(self.parts)], dict(tables)
        gone = deletable(tables) if self.deletes else set()
        for name, table in tables.items():
            # Rounded up: one row short of a k-th of all rows, no flush of pace k is due.
            ends = [math.ceil(table.num_rows * share) for share in shares]
            if name in gone:
                own, left[name] = with_deletes(table, ends, self.deletes)
            else:
                own = changes(table, ends)
            for step, rows in zip(steps, own, strict=True):
                if rows.num_rows:
                    step[name] = rows
        return Stream(steps, left)
