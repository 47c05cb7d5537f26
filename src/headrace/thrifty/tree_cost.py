"""What a step costs a tree of operators: a change is followed from its table to the answer, and rows are counted.

For a join it matters whether one side is found by a key: then a row of the other side meets one row, and a row of this
side meets all rows of the other side with its key. A condition on rows that are found by their key lets only a share of
those through that refer to them. An aggregate gives two rows per changed group, however many of its
rows changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.operators.reach import reach_of
from headrace.plan.assumptions import PASSING, ROWS_A_GROUP, TURNED_SHARE
from headrace.plan.tree import Aggregation, Feed, Join, JoinKind, Over, Port, Top, Tree
from headrace.thrifty.cost import Cost
from headrace.thrifty.statistics import OfSources, Statistics

Keys = Mapping[str, tuple[str, ...]]
"""The key of each table."""


def tree_cost(tree: Tree, statistics: Statistics) -> Cost:
    """Estimate the cost of a step of a tree of operators."""
    touched = {source: sum(rows) for source, rows in _touched(tree, statistics).items()}
    return Cost(touched, statistics.units.join)


def rows_by_operator(tree: Tree, statistics: Statistics) -> list[float]:
    """How many rows each operator looks at in a step, whatever changes."""
    touched = _touched(tree, statistics).values()
    return [sum(rows[number] for rows in touched) for number in range(len(tree.nodes))]


def _touched(tree: Tree, statistics: Statistics) -> dict[str, list[float]]:
    """How many rows each operator looks at in a step, by the source that changes."""
    keys, units = statistics.keys, statistics.units
    tables = {feed.source: feed.table for _, _, _, feed in tree.feeds() if feed.producer is None}
    known = statistics.of_sources(tables, looked_up(tree, keys))
    sizes = _sizes(tree, known, statistics.values)
    compared = units.compare / units.join
    return {s: _follow(tree, s, changed, sizes, keys, compared) for s, changed in known.changed.items() if changed}


def sizes_of(tree: Tree, statistics: Statistics) -> list[list[float]]:
    """About how many rows enter each port of each operator in all."""
    tables = {feed.source: feed.table for _, _, _, feed in tree.feeds() if feed.producer is None}
    return _sizes(tree, statistics.of_sources(tables, looked_up(tree, statistics.keys)), statistics.values)


def looked_up(tree: Tree, keys: Keys) -> dict[str, bool]:
    """Per source, whether a join finds its rows by the key of its table."""
    found = {}
    for number, _, _, feed in tree.feeds():
        if feed.producer is None:
            node = tree.nodes[number]
            found[feed.source] = isinstance(node, Join) and _by_key(feed, node.keys, keys)
    return found


def _by_key(feed: Feed, width: int, keys: Keys) -> bool:
    columns = {str(output.value) for output in feed.outputs[:width] if output.op == "column"}
    return bool(keys[feed.table]) and columns.issuperset(keys[feed.table])


def _sizes(tree: Tree, known: OfSources, values: Mapping[tuple[str, str], int]) -> list[list[float]]:
    """The total number of rows that enter each port of each operator."""
    given: list[float] = []
    entering: list[list[float]] = []
    for node in tree.nodes:
        ports = [
            sum(
                _left(feed, known.rows[feed.source] if feed.producer is None else given[feed.producer])
                for feed in port.feeds
            )
            for port in node.ports
        ]
        entering.append(ports)
        if isinstance(node, Aggregation):
            given.append(_groups(node, ports[0], values))
        elif isinstance(node, Top):
            given.append(min(float(node.count), ports[0]))
        elif isinstance(node, Over):
            partitions = max(1.0, ports[0] / ROWS_A_GROUP) if node.keys else 1.0
            given.append(ports[0] if node.first is None else min(ports[0], partitions * node.first.count))
        elif node.kind.pairs:
            given.append(max(ports) if node.keys else ports[0] * ports[1] * (PASSING if node.residual else 1))
        else:
            given.append(ports[0])
    return entering


def _groups(node: Aggregation, rows: float, values: Mapping[tuple[str, str], int]) -> float:
    """About how many groups there are: at most as many as values of their keys, for keys that refer to a table."""
    most = max(1.0, rows / ROWS_A_GROUP)
    feeds = node.port.feeds
    if len(feeds) != 1 or feeds[0].producer is not None:
        return most if node.plan.keys else 1.0
    found = 1.0
    for output in feeds[0].outputs[: node.keys]:
        found *= values.get((feeds[0].table, str(output.value)), most) if output.op == "column" else most
    return max(1.0, min(most, found))


def _left(feed: Feed, rows: float) -> float:
    return rows if feed.condition is None else rows * PASSING


def _follow(
    tree: Tree, source: str, changed: float, sizes: list[list[float]], keys: Keys, compared: float
) -> list[float]:
    """How many rows each operator looks at when a source changes; one that is only compared counts as `compared`."""
    total = [0.0] * len(tree.nodes)
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
            total[number] += arriving + (compared * met if isinstance(node, Join) and not node.keys else met)
            if isinstance(node, Join) and side == 1 and sizes[number][1] <= 1.0:
                met *= TURNED_SHARE  # all rows are compared with the new value, and for most the result stays the same
            out += met if isinstance(node, Join) and (node.kind.pairs or side == 1) else arriving
        if isinstance(node, Aggregation):
            out = min(2 * out, 2.0) if not node.plan.keys else 2 * min(out, max(1.0, sizes[number][0]))
        if isinstance(node, Over):
            rows = sizes[number][0]
            touched = min(rows, out * ROWS_A_GROUP) if node.keys or reach_of(node) else rows
            if node.first is not None:
                touched = min(touched, out * node.first.count)
            total[number] += touched
            out = max(out, touched)  # about half of the rows of a partition get other values, and each is two changes
        if isinstance(node, Top):
            out = 2 * min(out, float(node.count))  # each row that changes moves one in and one out at most
        moving[number] = out
    return total


def _partners(tree: Tree, node: Join, side: int, sizes: list[float], keys: Keys) -> float:
    """How many rows of the other side a row of this side meets."""
    mine, other = sizes[side], sizes[1 - side]
    if not node.keys:
        return max(1.0, other)
    if _unique(tree, node, 1 - side, keys):
        return _share(tree, node.ports[1 - side]) if node.kind is JoinKind.INNER else 1.0
    if mine <= 1.0:
        return 1.0  # one row, compared for equality: few are equal to it
    if _unique(tree, node, side, keys):
        return max(1.0, other / max(1.0, mine))
    return max(1.0, other / max(1.0, min(mine, other)))


def _share(tree: Tree, port: Port) -> float:
    """The share of all rows that a port could have which its conditions, and those before them, let through."""
    shares = []
    for feed in port.feeds:
        before = 1.0
        if feed.producer is not None:
            producer = tree.nodes[feed.producer]
            if isinstance(producer, Join) and producer.kind is JoinKind.INNER:
                before = _share(tree, producer.left) * _share(tree, producer.right)
        shares.append(_left(feed, before))
    return sum(shares) / len(shares)


def _unique(tree: Tree, node: Join, side: int, keys: Keys) -> bool:
    """Whether a side has at most one row per key of the join."""
    return _identifies(tree, node.ports[side], range(node.keys), keys)


def _identifies(tree: Tree, port: Port, places: Iterable[int], keys: Keys) -> bool:
    """Whether no two rows of a port agree on all of some fields."""
    if len(port.feeds) != 1:
        return False
    (feed,) = port.feeds
    columns = {str(feed.outputs[i].value) for i in places if feed.outputs[i].op == "column"}
    if feed.producer is None:
        return bool(keys[feed.table]) and columns.issuperset(keys[feed.table])
    producer = tree.nodes[feed.producer]
    if isinstance(producer, Aggregation):
        return columns.issuperset(f"k{i}" for i in range(producer.keys))
    if isinstance(producer, Over):
        own = [i for i, field in enumerate(producer.port.fields) if field.name in columns]
        return _identifies(tree, producer.port, own, keys)
    if isinstance(producer, Join):
        # A row of the left side is given at most once, if it finds its partner by a key of the right side.
        own = [i for i, field in enumerate(producer.left.fields) if field.name in columns]
        once = not producer.kind.pairs or _unique(tree, producer, 1, keys)
        return once and producer.kind is not JoinKind.FULL and _identifies(tree, producer.left, own, keys)
    return False
