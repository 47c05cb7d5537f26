"""What the flushes of a trigger tell about its operators: from counted rows to the parameters of the cost model.

Some parameters are sums that do not depend on the paces (the pairs that a join makes of a trigger's rows). Others say
in which order rows came, and show only where flushes were partial; these are chosen so that the formulas of
`cardinalities`, run over what an operator took, come nearest to what the operator gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.plan.paths import Path, children, paths_of
from headrace.plan.tree import Join, JoinKind, Node, Top, Tree
from headrace.thrifty import cardinalities as c
from headrace.thrifty.simulate import FlatPlan

_KINDS = {
    JoinKind.INNER: c.INNER,
    JoinKind.LEFT: c.LEFT,
    JoinKind.SINGLE: c.LEFT,
    JoinKind.FULL: c.FULL,
    JoinKind.SEMI: c.SEMI,
    JoinKind.ANTI: c.ANTI,
    JoinKind.NULL_AWARE: c.ANTI,
    JoinKind.FLAG: c.FLAG,
}
_SHARES = np.linspace(0.0, 1.0, 11)
_UNKNOWN_KAPPA = 0.5
Flow = tuple[float, float, float]
_NOTHING: Flow = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class OperatorFlow:
    """What one operator took and gave in a flush, as inserted, updated and deleted rows.

    Parameters
    ----------
    fed : rows that have come to an operator since it last ran, before equal ones were added up.
    groups : how many groups the input of an aggregate belonged to.
    cpu : its CPU seconds.
    """

    left: Flow = _NOTHING
    right: Flow = _NOTHING
    given: Flow = _NOTHING
    fed: float = 0.0
    groups: float = 0.0
    cpu: float = 0.0

    @property
    def rows(self) -> float:
        """Rows that the operator took: for an aggregate, the groups that they belong to."""
        return self.groups or gross(self.left) + gross(self.right)

    @property
    def summed(self) -> float:
        """Entries that waited before an aggregate, and are added up by group once more."""
        return self.left[0] if self.groups else 0.0

    @property
    def entries(self) -> float:
        """What waited before an aggregate or a top."""
        return self.fed or gross(self.left)


@dataclass(frozen=True)
class Flushed:
    """One flush: its operators, and the CPU time that it took."""

    operators: Mapping[int, OperatorFlow]
    cpu: float = 0.0
    is_last: bool = False

    @property
    def rows(self) -> float:
        return sum(flow.rows for flow in self.operators.values())


Base = Mapping[tuple[int, int], float]
"""Rows of the sides of joins when the data of a trigger began."""


def gross(flow: Flow) -> float:
    """Changed rows: an update deletes one and inserts another."""
    return flow[0] + 2 * flow[1] + flow[2]


def learnt(
    tree: Tree,
    flushes: Sequence[Flushed],
    base: Base,
    before: FlatPlan | None = None,
    paths: tuple[Path, ...] | None = None,
) -> FlatPlan:
    """The plan of a trigger as its flushes have shown it.

    Parameters
    ----------
    before : what was known; it says in which order rows come, if no flush of this trigger was partial.
    paths : those of the operators that run here, if some of the tree run elsewhere; all by default.
    """
    paths = paths_of(tree) if paths is None else paths
    numbers = {path.name: i for i, path in enumerate(paths)}
    size = len(tree.nodes)
    path_of = np.full((size, 2), -1, np.int64)
    for path in paths:
        path_of[path.number, path.side] = numbers[path.name]
    sums = [_summed([flush.operators[n] for flush in flushes if n in flush.operators]) for n in range(size)]
    feeds, passing = _feeds(tree, sums)
    arriving, parameters, kinds = np.zeros((size, 2, 3)), np.zeros((size, c.PARAMETERS)), np.zeros(size, np.int64)
    for n, node in enumerate(tree.nodes):
        seen = [flush.operators[n] for flush in flushes if n in flush.operators]
        known = None if before is None else before.parameters[n]
        kinds[n] = _kind(node)
        for side, port in enumerate(node.ports):
            from_tables = [feed.producer is None for feed in port.feeds]
            if isinstance(node, Join) and any(from_tables):
                arriving[n, side] = (sums[n].left, sums[n].right)[side]
            elif all(from_tables):  # of both, table rows cannot be told from those of operators
                arriving[n, side, 0] = sums[n].entries
        if isinstance(node, Join):
            parameters[n] = _join(int(kinds[n]), sums[n], seen, base.get((n, 0), 0.0), base.get((n, 1), 0.0), known)
        elif isinstance(node, Top):
            wanted = float(min(node.count, 1 << 40) + node.offset)
            parameters[n, c.WANTED], parameters[n, c.TOP_BASE] = wanted, base.get((n, 0), 0.0)
            parameters[n, c.SCALE] = 1.0
        else:
            parameters[n] = _group(sums[n], seen, base.get((n, 0), 0.0), known)
    pairs = [(numbers[child], numbers[name]) for name, own in children(paths).items() for child in own]
    names = tuple(path.name for path in paths)
    return FlatPlan(kinds, parameters, path_of, arriving, feeds, passing, names, tuple(pairs))


def _kind(node: Node) -> int:
    if isinstance(node, Join):
        return _KINDS[node.kind]
    return c.TOP if isinstance(node, Top) else c.GROUP


def _summed(seen: Sequence[OperatorFlow]) -> OperatorFlow:
    def flow(name: str) -> Flow:
        one, two, three = (sum(getattr(s, name)[i] for s in seen) for i in range(3))
        return one, two, three

    return OperatorFlow(
        flow("left"),
        flow("right"),
        flow("given"),
        sum(s.fed for s in seen),
        sum(s.groups for s in seen),
    )


def _feeds(tree: Tree, sums: Sequence[OperatorFlow]) -> tuple[Any, Any]:
    """Feeds between operators, and which share of what is given passes each."""
    found: dict[tuple[int, int], list[int]] = {}
    for n, side, _, feed in tree.feeds():
        if feed.producer is not None:
            found.setdefault((n, side), []).append(feed.producer)
    feeds, passing = [], []
    for (n, side), producers in found.items():
        given = [sum(sums[p].given[flow] for p in producers) for flow in range(3)]
        matrix = np.zeros((3, 3))
        if isinstance(tree.nodes[n], Join):
            taken = (sums[n].left, sums[n].right)[side]
            for flow in range(3):
                matrix[flow, flow] = min(1.0, taken[flow] / given[flow]) if given[flow] else 1.0
            if given[1]:  # an update may move a row over the edge of a condition
                for flow in (0, 2):
                    matrix[flow, 1] = max(0.0, taken[flow] - given[flow]) / given[1]
        else:
            whole = gross((given[0], given[1], given[2]))
            matrix[:] = np.eye(3) * (min(1.0, sums[n].entries / whole) if whole else 1.0)
        for producer in producers:
            feeds.append((producer, n, side))
            passing.append(matrix)
    if not feeds:
        return np.zeros((0, 3), np.int64), np.zeros((0, 3, 3))
    return np.array(feeds, np.int64), np.array(passing)


# -- joins ----------------------------------------------------------------------------------------------------------


def _join(
    kind: int, total: OperatorFlow, seen: Sequence[OperatorFlow], left: float, right: float, before: Any
) -> c.Numbers:
    p = np.zeros(c.PARAMETERS)
    p[c.LEFT_BASE], p[c.RIGHT_BASE] = left, right
    p[c.LEFT_ROWS], p[c.RIGHT_ROWS] = total.left[0] + total.left[2], total.right[0] + total.right[2]
    p[c.SCALE], p[c.PARTNERS] = 1.0, 1.0
    p[c.KAPPA] = _UNKNOWN_KAPPA if before is None else before[c.KAPPA]
    candidates = [_with(p, c.KAPPA, float(kappa)) for kappa in _SHARES] if len(seen) > 1 else [p]
    fitted = [_scaled(kind, made, seen) for one in candidates for made in _with_matches(kind, one, total)]
    _, best = min(fitted, key=lambda one: one[0])
    updated = total.left[1] + total.right[1]
    if not updated:  # as if it meant the partners of a row
        rows = p[c.LEFT_ROWS] + p[c.RIGHT_ROWS]
        best[c.LEFT_CHURN] = best[c.RIGHT_CHURN] = total.given[0] / rows if rows else 1.0
    return best


def _scaled(kind: int, p: c.Numbers, seen: Sequence[OperatorFlow]) -> tuple[float, c.Numbers]:
    """The parameters with the scale and the churn that fit best what was given, and the error that is left.

    Rows that a join gives for updates cannot be told from those that it gives for new rows, but more or fewer of either
    came in each flush.
    """
    gave = np.array([gross(flow.given) for flow in seen])
    plain = np.array([gross(flow) for flow in _join_replayed(kind, p, seen)])
    churned = _with(_with(p, c.LEFT_CHURN, 1.0), c.RIGHT_CHURN, 1.0)
    again = np.array([gross(flow) for flow in _join_replayed(kind, churned, seen)]) - plain
    scale, churn = _two_factors(plain, again, gave)
    out = _with(p, c.SCALE, scale if plain.sum() > 0 else 1.0)
    out[c.LEFT_CHURN] = out[c.RIGHT_CHURN] = churn
    return float(np.abs(scale * plain + churn * again - gave).sum()), out


def _two_factors(one: c.Numbers, other: c.Numbers, total: c.Numbers) -> tuple[float, float]:
    """The factors, neither negative, with which two series come nearest to a third (least squares)."""
    aa, ab, bb = float(one @ one), float(one @ other), float(other @ other)
    ay, by = float(one @ total), float(other @ total)
    determinant = aa * bb - ab * ab
    if determinant > 1e-9 * aa * bb:
        first, second = (ay * bb - by * ab) / determinant, (aa * by - ab * ay) / determinant
        if first >= 0 and second >= 0:
            return first, second
    alone = (ay / aa if aa else 0.0, 0.0), (0.0, by / bb if bb else 0.0)
    return min(alone, key=lambda pair: float(np.square(pair[0] * one + pair[1] * other - total).sum()))


def _with_matches(kind: int, p: c.Numbers, total: OperatorFlow) -> list[c.Numbers]:
    """The parameters with the share of left rows that have a partner: computed, or several to try."""
    net = total.given[0] - total.given[2]
    rows = max(1.0, total.left[0] - total.left[2])
    if kind == c.INNER:
        return [_with(p, c.PAIRS, total.given[0] + total.given[2])]
    if kind == c.SEMI:
        return [_with(p, c.MATCHED, min(1.0, max(0.0, net / rows)))]
    if kind == c.ANTI:
        return [_with(p, c.MATCHED, min(1.0, max(0.0, 1.0 - net / rows)))]
    out = []
    for share in _SHARES:
        one = _with(p, c.MATCHED, float(share))
        one[c.PAIRS] = max(0.0, net - rows * (1.0 - share))
        one[c.PARTNERS] = max(1.0, one[c.PAIRS] / max(1.0, rows * share))
        out.append(one)
    return out


def _with(p: c.Numbers, at: int, value: float) -> c.Numbers:
    out = p.copy()
    out[at] = value
    return out


def _join_replayed(kind: int, p: c.Numbers, seen: Sequence[OperatorFlow]) -> list[Flow]:
    """What the formulas say a join gives for what it took."""
    cumulated, out, found = np.zeros(2), np.zeros(3), []
    for flow in seen:
        c.join_flow(kind, p, cumulated, np.array([flow.left, flow.right]), out)
        found.append((out[0], out[1], out[2]))
    return found


# -- aggregates -----------------------------------------------------------------------------------------------------


def _group(total: OperatorFlow, seen: Sequence[OperatorFlow], there: float, before: Any) -> c.Numbers:
    p = np.zeros(c.PARAMETERS)
    p[c.ROWS], p[c.SCALE] = total.entries, 1.0
    p[c.NEW] = total.given[0]
    known = max(0.0, total.groups - total.given[0])
    p[c.GONE] = min(1.0, total.given[2] / known) if known else 0.0
    stay = known - total.given[2]
    p[c.SHOWN] = min(1.0, total.given[1] / stay) if stay > 0 else 1.0
    p[c.KAPPA] = _UNKNOWN_KAPPA if before is None else before[c.KAPPA]
    least = max([p[c.NEW], *(flow.groups for flow in seen)])
    if len(seen) < 2:
        p[c.GROUPS] = least
        return p
    # Groups that were there before cannot be told from each other; without them, all groups are new.
    most = min(total.groups, p[c.NEW] + there) if there or not p[c.NEW] else p[c.NEW]
    tried = []
    for groups in np.geomspace(max(1.0, least), max(1.0, least, most), 12):
        for kappa in _SHARES:
            one = _with(p, c.KAPPA, float(kappa))
            one[c.GROUPS] = groups
            tried.append(one)
    return min(tried, key=lambda one: _group_error(one, seen))


def _group_error(p: c.Numbers, seen: Sequence[OperatorFlow]) -> float:
    """How far the formulas are from the groups that flushes touched, and from those that were new."""
    error, before, out = 0.0, 0.0, np.zeros(3)
    for flow in seen:
        touched = c.group_flow(p, before, flow.entries, out)
        error += abs(touched - flow.groups) + abs(out[0] - flow.given[0])
        before += flow.entries
    return error


# -- the next trigger -----------------------------------------------------------------------------------------------


def next_trigger(plan: FlatPlan) -> FlatPlan:
    """The plan of a trigger that brings as many rows as the last one, to operators that hold the rows of that too."""
    parameters = plan.parameters.copy()
    for n, kind in enumerate(plan.kinds):
        p = parameters[n]
        if kind == c.TOP:
            p[c.TOP_BASE] += plan.arriving[n, 0, 0]
        elif kind == c.GROUP:
            p[c.NEW] *= p[c.KAPPA]  # groups whose rows come together keep coming; all others are there by now
        else:
            left, right = p[c.LEFT_BASE] + p[c.LEFT_ROWS], p[c.RIGHT_BASE] + p[c.RIGHT_ROWS]
            before = left * right - p[c.LEFT_BASE] * p[c.RIGHT_BASE]
            after = (left + p[c.LEFT_ROWS]) * (right + p[c.RIGHT_ROWS]) - left * right
            if before > 0:
                p[c.PAIRS] *= p[c.KAPPA] + (1.0 - p[c.KAPPA]) * after / before
            p[c.LEFT_CHURN] *= (right + p[c.RIGHT_ROWS]) / max(1.0, right)
            p[c.RIGHT_CHURN] *= (left + p[c.LEFT_ROWS]) / max(1.0, left)
            p[c.LEFT_BASE], p[c.RIGHT_BASE] = left, right
    return replace(plan, parameters=parameters)
