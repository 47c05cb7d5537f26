"""What a step did: the result of `Engine.apply`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.operators.kernel import ViewChange


@dataclass(frozen=True)
class Step:
    """One committed step.

    Attributes
    ----------
    number : counts the steps of the location from 1.
    rows : changed rows applied, by table.
    seconds : from the call to the commit.
    state_bytes : size of all runs after the step.
    views : the changes of each view, counted.
    ran : "driver" or "job".
    why : why the step ran there.
    quarantined : bad rows set aside, by table.
    late : rows older than the watermark, set aside, by table.
    closed : groups that became final because their windows closed, by view.
    stands_for : the rows that the products of a table stand for, by table; `rows` counts the rows of their parts.
    multiplied_out : entries that were made of products, by view and by what they were made for.
    skipped : True when this micro-batch had been committed before; nothing was done.
    """

    number: int
    rows: dict[str, int]
    seconds: float
    state_bytes: int
    views: dict[str, ViewChange]
    ran: str
    why: str
    quarantined: dict[str, int] = field(default_factory=dict)
    skipped: bool = False
    late: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    stands_for: dict[str, int] = field(default_factory=dict)
    multiplied_out: dict[str, dict[str, int]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The step as plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        if self.skipped:
            return f"step {self.number}: nothing to do, this micro-batch was committed before"
        rows = ", ".join(map(self._applied, self.rows)) or "no rows"
        changed = ", ".join(f"{name} {change}" for name, change in self.views.items() if change)
        said = [f"{_rows(count)} of {view} final" for view, count in self.closed.items()]
        for kind, counts in (("bad ", self.quarantined), ("late ", self.late)):
            said += [f"{_rows(count, kind)} of {table} set aside" for table, count in counts.items()]
        took = f"{self.seconds * 1e3:,.1f} ms ({self.ran})"
        return "; ".join([f"step {self.number}: {rows} in {took}", changed or "no view changed", *said])

    def _applied(self, table: str) -> str:
        said = f"{_rows(self.rows[table])} of {table}"
        return f"{said} (for {self.stands_for[table]:,})" if table in self.stands_for else said


def _rows(count: int, kind: str = "") -> str:
    return f"{count:,} {kind}row{'' if count == 1 else 's'}"
