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

    def to_dict(self) -> dict[str, Any]:
        """The step as plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        if self.skipped:
            return f"step {self.number}: nothing to do, this micro-batch was committed before"
        rows = ", ".join(f"{_rows(count)} of {table}" for table, count in self.rows.items()) or "no rows"
        changed = ", ".join(f"{name} {change}" for name, change in self.views.items() if change)
        said = [f"{_rows(count)} of {view} final" for view, count in self.closed.items()]
        for kind, counts in (("bad ", self.quarantined), ("late ", self.late)):
            said += [f"{_rows(count, kind)} of {table} set aside" for table, count in counts.items()]
        took = f"{self.seconds * 1e3:,.1f} ms ({self.ran})"
        return "; ".join([f"step {self.number}: {rows} in {took}", changed or "no view changed", *said])


def _rows(count: int, kind: str = "") -> str:
    return f"{count:,} {kind}row{'' if count == 1 else 's'}"
