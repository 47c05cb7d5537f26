"""Query paths: where changes may wait on their way through a tree of operators, and where they go from there.

A path begins where changes can wait: before a join, for the rows of a table, or before an operator that takes all of
its input before it gives anything (an aggregate, DISTINCT, the first rows of an order). It ends before the next such
operators. What a join is given by another operator does not wait: pairs are handed on as they are found, so a join
belongs to all paths that go through it.

Rows of a table that go straight into an aggregate are summed by group when they come, which costs the same whenever it
is done: no path begins at that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.plan.tree import Feed, Join, Node, Port, Tree

_SIDES = ("left", "right")


@dataclass(frozen=True)
class Path:
    """One path of a tree.

    Parameters
    ----------
    number, side : the operator before which changes wait, and the port at which they do.
    is_source : whether the path begins at a table, before a join.
    tables : the tables whose rows wait here.
    through : the operators that a flush runs, in their order: the one above, and then joins.
    ends : the paths that begin where this one ends.
    """

    name: str
    number: int
    side: int
    is_source: bool
    tables: tuple[str, ...]
    through: tuple[int, ...]
    ends: tuple[str, ...]


def paths_of(tree: Tree) -> tuple[Path, ...]:
    """All paths of a tree, in the order of their operators; the last begins before the answer."""
    readers: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(tree.nodes))}
    for number, side, _, feed in tree.feeds():
        if feed.producer is not None:
            readers[feed.producer].append((number, side))
    names = _starts(tree)
    out = []
    for (number, side), name in names.items():
        through, ends, left = {number}, dict[str, None](), [number]
        while left:
            for reader, port in readers[left.pop()]:
                if (reader, port) in names:
                    ends[names[reader, port]] = None
                elif reader not in through:
                    through.add(reader)
                    left.append(reader)
        is_source = isinstance(tree.nodes[number], Join)
        tables = _tables(tree, number, side)
        out.append(Path(name, number, side, is_source, tables, tuple(sorted(through)), tuple(ends)))
    return tuple(out)


def with_given(tree: Tree, given: Mapping[int, str]) -> Tree:
    """The same tree, where rows that come from elsewhere in place of some operators are read as those of a table.

    Parameters
    ----------
    given : per such operator, the name of what gives its rows.
    """
    if not given:
        return tree
    return Tree(tuple(_with_given(node, given) for node in tree.nodes))


def _with_given(node: Node, given: Mapping[int, str]) -> Node:
    def read(feed: Feed) -> Feed:
        by = None if feed.producer is None else given.get(feed.producer)
        return feed if by is None else replace(feed, producer=None, table=by, source=f"{by}#{feed.producer}")

    def port(old: Port) -> Port:
        return replace(old, feeds=tuple(map(read, old.feeds)))

    if isinstance(node, Join):
        return replace(node, left=port(node.left), right=port(node.right))
    return replace(node, port=port(node.port))


def children(paths: tuple[Path, ...]) -> dict[str, tuple[str, ...]]:
    """The paths that end where each path begins."""
    return {path.name: tuple(other.name for other in paths if path.name in other.ends) for path in paths}


def _starts(tree: Tree) -> dict[tuple[int, int], str]:
    """The ports at which changes wait, each with the name of the path that begins there."""
    out = {}
    for number, node in enumerate(tree.nodes):
        if not isinstance(node, Join):
            out[number, 0] = str(number)
            continue
        for side in (0, 1):
            if _tables(tree, number, side):
                out[number, side] = f"{number}.{_SIDES[side]}"
    return out


def _tables(tree: Tree, number: int, side: int) -> tuple[str, ...]:
    port = tree.nodes[number].ports[side]
    return tuple(dict.fromkeys(feed.table for feed in port.feeds if feed.producer is None))
