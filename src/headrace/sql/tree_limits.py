"""ORDER BY with LIMIT and OFFSET of an optimized plan, as an operator that keeps the first rows."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.plan.tree import Top
from headrace.sql.jvm import Jvm, identity, items, kind
from headrace.sql.refusals import Refusals
from headrace.sql.tree_streams import Stream, numbered

if TYPE_CHECKING:
    from headrace.sql.tree_reader import TreeReader

LIMITS = {"GlobalLimit", "LocalLimit", "Offset"}


def read_top(reader: TreeReader, node: Jvm, needed: set[int]) -> Stream:
    """Read ORDER BY with LIMIT and OFFSET as an operator; returns the stream of the rows that it keeps."""
    limit, offset, below = limits(node, reader.refusals)
    projects, order, base = ordered(below)
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
    number = reader.add(Top(port, tuple(directions), limit, offset))
    return reader.given(number, [(a, f"c{i}") for i, a in enumerate(columns)])


def limits(node: Jvm, refusals: Refusals) -> tuple[int, int, Jvm]:
    """LIMIT and OFFSET at the top of a plan, and what is below them."""
    limit, offset = sys.maxsize, 0
    while kind(node) in LIMITS:
        if kind(node) == "GlobalLimit":
            if offset:
                break  # a LIMIT of its own, below an OFFSET
            limit = min(limit, _number(refusals, node, node.limitExpr()))
        elif kind(node) == "Offset":
            offset += _number(refusals, node, node.offsetExpr())
        node = node.child()
    return limit, offset, node


def _number(refusals: Refusals, node: Jvm, expression: Jvm) -> int:
    if kind(expression) != "Literal":
        refusals.refuse_operator(node)
    return int(expression.value())


def ordered(node: Jvm) -> tuple[list[Jvm], list[Jvm], Jvm]:
    """The projections above a sort, the items of the sort, and the plan below it; without a sort, the plan itself."""
    projects, below = [], node
    while kind(below) in ("Project", "SubqueryAlias", "View", "ResolvedHint", "LocalLimit"):
        if kind(below) == "Project":
            projects.append(below)
        below = below.child()
    if kind(below) != "Sort":
        return [], [], node
    return projects, items(below.order()), below.child()


def direction(item: Jvm) -> tuple[bool, bool]:
    """Whether an item of ORDER BY is descending, and whether NULLs come first."""
    return kind(item.direction()).startswith("Descending"), kind(item.nullOrdering()).startswith("NullsFirst")
