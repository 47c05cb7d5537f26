"""What more flushes of a path buy, and the estimated trade-off between fresh and cheap for a whole view.

Incrementability (Eq. 3.1 of InQP) is the final work that more flushes save, for each unit of total work that
they add. It is counted in rows here, because whether work is done twice is a matter of the query and its data, while
what it costs to start a flush is a matter of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.thrifty.paces import Search
from headrace.thrifty.simulate import FlatPlan
from headrace.thrifty.unit_costs import UnitCosts

SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
_RAISED = 10  # the pace that slow paths are compared with
_SLACK = 0.01  # rows, as a share of all, that are a matter of rounding
FULLY, PARTIALLY, NOT = "fully", "partially", "not"


@dataclass(frozen=True)
class PathIncrementability:
    """What more flushes of one path buy.

    Parameters
    ----------
    kind : "fully", "partially" or "not".
    ratio : rows saved at the trigger for each row that is taken in addition; None if none is.
    operator : the operator that takes most of the additional rows; None if there are none.
    """

    path: str
    kind: str
    saved: float
    added: float
    ratio: float | None
    operator: int | None


def incrementability(plan: FlatPlan, paces: Mapping[str, int]) -> list[PathIncrementability]:
    """What more flushes of each path would buy, if all other paths are flushed as often as they are."""
    search = Search(plan, UnitCosts.alike(len(plan.kinds), start=0.0, taken=1.0, given=0.0))
    now = tuple(max(1, paces.get(name, 1)) for name in plan.paths)
    out = []
    for i, name in enumerate(plan.paths):
        raised = min(search.most, max(_RAISED, 2 * now[i]))
        # What ends where the path begins has to come as often, or there would be nothing to flush.
        fed = search.valid([raised if j == i else pace for j, pace in enumerate(now)], raising=True)
        before, after = search.cost((*fed[:i], now[i], *fed[i + 1 :])), search.cost(fed)
        slack = _SLACK * before.total_rows
        saved, added = before.final_rows - after.final_rows, after.total_rows - before.total_rows
        more = {n: after.rows[n] - before.rows[n] for n in after.rows}
        most = max(more, key=lambda n: more[n], default=None) if added > slack else None
        kind = FULLY if added <= slack else PARTIALLY if saved > 0 else NOT
        out.append(PathIncrementability(name, kind, saved, added, saved / added if added > slack else None, most))
    return out


@dataclass(frozen=True)
class Point:
    """The estimate for one share of final work.

    Parameters
    ----------
    additional : work in addition to doing everything at the trigger, as a share of that.
    latency : seconds of CPU from the trigger to the result.
    final : final work, as a share of doing everything at the trigger.
    feasible : whether the estimate reaches the share.
    """

    share: float
    additional: float
    final: float
    latency: float
    feasible: bool
    paces: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The values for JSON."""
        return asdict(self)


def tradeoff(search: Search) -> list[Point]:
    """Estimates for shares of final work from 1 down to 0.02."""
    out = []
    whole = search.everything
    for share in SHARES:
        found = search.best(share)
        paces = dict(zip(search.plan.paths, found.paces, strict=True))
        added = (found.work.total + search.held) / whole - 1 if whole else 0.0
        final = found.work.final / whole if whole else 0.0
        out.append(Point(share, added, final, found.work.final / 1e6, found.feasible, paces))
    return out
