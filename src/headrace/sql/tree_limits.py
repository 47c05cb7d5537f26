"""ORDER BY with LIMIT and OFFSET of an optimized plan, as an operator that keeps the first rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from headrace.plan.tree import Top
from headrace.sql.jvm import Jvm, identity, items, kind
from headrace.sql.refusals import Refusals
from headrace.sql.tree_streams import Stream, numbered

if TYPE_CHECKING:
    from headrace.sql.tree_reader import TreeReader

LIMITS = {"GlobalLimit", "LocalLimit", "Offset"}
_PASSED = {"Project", "SubqueryAlias", "View", "ResolvedHint"}  # these keep the order of their rows


def read_top(reader: TreeReader, node: Jvm, needed: set[int]) -> Stream:
    """Read ORDER BY with LIMIT and OFFSET as an operator; returns the stream of the rows that it keeps."""
    top = cut(node, reader.refusals)
    projects, order, base = top.projects, top.order, top.base
    keys = [item.child() for item in order]
    named = [[reader.without_subqueries(item) for item in items(project.projectList())] for project in projects]
    if projects or keys:
        wanted = [attribute for attribute in items(base.output()) if identity(attribute) in needed]
        streams = reader.streams_with(base, [*wanted, *keys, *(item for project in named for item in project)])
    else:
        streams = reader.streams(base, needed)
    sorted_by = [[reader.resolve(key, stream) for key in keys] for stream in streams]
    for project in reversed(named):
        streams = [reader.projected(stream, project) for stream in streams]
    columns = [attribute for attribute in items(node.output()) if identity(attribute) in needed]
    places = []
    extra: list[int] = []  # order items that are no columns
    for i in range(len(order)):
        first = streams[0]
        at = [j for j, c in enumerate(columns) if reader.resolve(c, first).semanticEquals(sorted_by[0][i])]
        if at and all(
            reader.resolve(columns[at[0]], s).semanticEquals(b[i]) for s, b in zip(streams, sorted_by, strict=True)
        ):
            places.append(at[0])
        else:
            places.append(len(columns) + len(extra))
            extra.append(i)
    hidden = [reader.catalyst.attribute("sorted", order[i].child().dataType(), True) for i in extra]
    streams = [
        replace(stream, meaning=stream.meaning | {identity(h): by[i] for h, i in zip(hidden, extra, strict=True)})
        for stream, by in zip(streams, sorted_by, strict=True)
    ]
    port = reader.port(streams, numbered("c", [*columns, *hidden]))
    directions = [(place, *direction(item)) for place, item in zip(places, order, strict=True)]
    number = reader.add(Top(port, tuple(directions), top.limit, top.offset))
    return reader.given(number, [(a, f"c{i}") for i, a in enumerate(columns)])


@dataclass(frozen=True)
class Cut:
    """LIMIT and OFFSET at the top of a plan, and the order that they are about."""

    limit: int
    offset: int
    projects: list[Jvm]  # projections between the topmost limit and the sort, the uppermost first
    order: list[Jvm]  # items of the sort; none if there is no sort, and then any rows will do
    base: Jvm  # the plan below all of these


def cut(node: Jvm, refusals: Refusals) -> Cut:
    """Read the limits, offsets and projections above a sort; without a sort, the topmost limits and offsets."""
    chain, below = [], node
    while kind(below) in LIMITS or kind(below) in _PASSED:
        chain.append(below)
        below = below.child()
    if kind(below) != "Sort":
        chain = list(takewhile(lambda one: kind(one) in LIMITS, chain))
        return Cut(*_kept(chain, refusals), [], [], chain[-1].child())
    projects = [one for one in chain if kind(one) == "Project"]
    return Cut(*_kept(chain, refusals), projects, items(below.order()), below.child())


def _kept(chain: list[Jvm], refusals: Refusals) -> tuple[int, int]:
    """How many rows a chain of limits and offsets keeps, and how many come before these."""
    first, end = 0, sys.maxsize
    for node in reversed(chain):  # the lowest is applied first
        if kind(node) == "GlobalLimit":
            end = min(end, first + _number(refusals, node, node.limitExpr()))
        elif kind(node) == "Offset":
            first += _number(refusals, node, node.offsetExpr())
    return (end if end == sys.maxsize else max(end - first, 0)), first


def _number(refusals: Refusals, node: Jvm, expression: Jvm) -> int:
    if kind(expression) != "Literal":
        refusals.refuse_operator(node)
    return int(expression.value())


def direction(item: Jvm) -> tuple[bool, bool]:
    """Whether an item of ORDER BY is descending, and whether NULLs come first."""
    return kind(item.direction()).startswith("Descending"), kind(item.nullOrdering()).startswith("NullsFirst")
