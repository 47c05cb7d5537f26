"""What a step costs a tree of operators: a change is followed from its table to the answer, and rows are counted.

Of a join it matters whether one side is found by a key: then a row of the other side meets one row, and a row of this
side meets as many as there are for each key. An aggregate gives two rows for a group it changes, however many changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.plan.tree import Aggregation, Feed, Join, Top, Tree
from headrace.plan.work import Statistics, Work

MICROSECONDS = 1.0
_PASSING = 0.5  # the share of rows that a condition leaves, as long as nothing is known of it
_COMPARED = 0.1  # rows that are only compared, on columns, cost so much less than those that are looked up
_TURNED = 0.01  # the share of rows that a new value of a scalar subquery makes a difference to
_ROWS_A_GROUP = 4  # as long as nothing is known of the keys


def tree_work(
    strategy: str,
    tree: Tree,
    statistics: Statistics,
    keys: Mapping[str, tuple[str, ...]],
    values: Mapping[tuple[str, str], int],
) -> Work:
    """Estimate a step; `keys` are those of the tables, `values` how many values a column refers to."""
    sizes = _sizes(tree, statistics, values)
    sources = [feed.source for _, _, _, feed in tree.feeds() if feed.producer is None]
    touched = {s: _follow(tree, s, statistics.changed[s], sizes, keys) for s in sources if statistics.changed[s]}
    return Work(strategy, touched, MICROSECONDS)


def looked_up(tree: Tree, keys: Mapping[str, tuple[str, ...]]) -> dict[str, bool]:
    """For each source, whether a join finds its rows by the key of its table."""
    found = {}
    for number, _, _, feed in tree.feeds():
        if feed.producer is None:
            node = tree.nodes[number]
            found[feed.source] = isinstance(node, Join) and _by_key(feed, node.keys, keys)
    return found


def _by_key(feed: Feed, width: int, keys: Mapping[str, tuple[str, ...]]) -> bool:
    columns = {str(output.value) for output in feed.outputs[:width] if output.op == "column"}
    return bool(keys[feed.table]) and columns.issuperset(keys[feed.table])


def _sizes(tree: Tree, statistics: Statistics, values: Mapping[tuple[str, str], int]) -> list[list[float]]:
    """Rows that enter each port of each operator, in all."""
    given: list[float] = []
    entering: list[list[float]] = []
    for node in tree.nodes:
        ports = [
            sum(
                _left(feed, statistics.rows[feed.source] if feed.producer is None else given[feed.producer])
                for feed in port.feeds
            )
            for port in node.ports
        ]
        entering.append(ports)
        if isinstance(node, Aggregation):
            given.append(_groups(node, ports[0], values))
        elif isinstance(node, Top):
            given.append(min(float(node.count), ports[0]))
        elif node.kind.pairs:
            given.append(max(ports) if node.keys else ports[0] * ports[1] * (_PASSING if node.residual else 1))
        else:
            given.append(ports[0])
    return entering


def _groups(node: Aggregation, rows: float, values: Mapping[tuple[str, str], int]) -> float:
    """About how many groups there are: no more than there are values of their keys, where these refer to a table."""
    most = max(1.0, rows / _ROWS_A_GROUP)
    feeds = node.port.feeds
    if len(feeds) != 1 or feeds[0].producer is not None:
        return most if node.plan.keys else 1.0
    found = 1.0
    for output in feeds[0].outputs[: len(node.plan.keys)]:
        found *= values.get((feeds[0].table, str(output.value)), most) if output.op == "column" else most
    return max(1.0, min(most, found))


def _left(feed: Feed, rows: float) -> float:
    return rows if feed.condition is None else rows * _PASSING


def _follow(
    tree: Tree, source: str, changed: float, sizes: list[list[float]], keys: Mapping[str, tuple[str, ...]]
) -> float:
    """Rows that are looked at when a source changes."""
    total = 0.0
    moving = [0.0] * len(tree.nodes)  # changes that each operator gives
    for number, node in enumerate(tree.nodes):
        out = 0.0
        for side, port in enumerate(node.ports):
            arriving = 0.0
            for feed in port.feeds:
                if feed.producer is None:
                    arriving += _left(feed, changed) if feed.source == source else 0.0
                else:
                    arriving += _left(feed, moving[feed.producer])
            if not arriving:
                continue
            met = arriving * _partners(tree, node, side, sizes[number], keys) if isinstance(node, Join) else arriving
            total += arriving + (_COMPARED * met if isinstance(node, Join) and not node.keys else met)
            if isinstance(node, Join) and side == 1 and sizes[number][1] <= 1.0:
                met *= _TURNED  # all rows are compared with the new value, and most compare as they did with the old
            out += met if isinstance(node, Join) and (node.kind.pairs or side == 1) else arriving
        if isinstance(node, Aggregation):
            out = min(2 * out, 2.0) if not node.plan.keys else 2 * min(out, max(1.0, sizes[number][0]))
        moving[number] = out
    return total


def _partners(tree: Tree, node: Join, side: int, sizes: list[float], keys: Mapping[str, tuple[str, ...]]) -> float:
    """How many rows of the other side a row of this side meets."""
    mine, other = sizes[side], sizes[1 - side]
    if not node.keys:
        return max(1.0, other)
    if _unique(tree, node, 1 - side, keys):
        return 1.0
    if mine <= 1.0:
        return 1.0  # one row, compared for equality: few are equal to it
    if _unique(tree, node, side, keys):
        return max(1.0, other / max(1.0, mine))
    return max(1.0, other / max(1.0, min(mine, other)))


def _unique(tree: Tree, node: Join, side: int, keys: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a side has one row at most for each key of the join."""
    feeds = node.ports[side].feeds
    if len(feeds) != 1:
        return False
    (feed,) = feeds
    if feed.producer is None:
        return _by_key(feed, node.keys, keys)
    producer = tree.nodes[feed.producer]
    columns = {str(output.value) for output in feed.outputs[: node.keys] if output.op == "column"}
    return isinstance(producer, Aggregation) and columns.issuperset(f"k{i}" for i in range(len(producer.plan.keys)))
