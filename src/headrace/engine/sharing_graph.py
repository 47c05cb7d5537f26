"""The drawing of what an engine shares: views on top, shared subplans in the middle, tables below, all with paces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.engine.catalogue import Catalogue
from headrace.engine.reader import Reader
from headrace.engine.sharing_work import SharedWork
from headrace.explain.graph import Edge, Graph, Node
from headrace.explain.words import listed, one_line
from headrace.thrifty.schedule import LEARNING
from headrace.thrifty.share.apart import Apart

if TYPE_CHECKING:
    from headrace.engine.sharing_report import SharedReport


def sharing_graph(
    found: Sequence[SharedReport],
    catalogue: Catalogue,
    reader: Reader,
    apart: Sequence[Apart],
    work: Mapping[str, SharedWork],
) -> Graph:
    """Draw the shared plan of an engine."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    read: dict[str, None] = {}
    for name, view in catalogue.views.items():
        lines = (name, view.definition.strategy)
        was = (f"taken apart from {listed(others)}" for others in _others(name, apart))
        about = one_line(view.definition.sql)
        nodes.append(Node(name, "view", 0, lines, (runs_of_view(name, catalogue, reader), *was), about=about))
        through = {side.table for side in view.kernel.sides}
        edges += [Edge(name, f"table {table}") for table in view.tables if table in through]
        read |= dict.fromkeys(table for table in view.tables if table in through)
    for one in found:
        lines = (f"shared subplan {one.name}", f"{one.are} in place of {one.instead_of}")
        notes = (one.runs_briefly, str(work[one.name]), f"{one.bytes:,} bytes kept")
        nodes.append(Node(one.name, "shared", 1, lines, notes, str(one)))
        edges += [Edge(view, one.name) for view in one.views]
        edges += [Edge(one.name, f"table {table}") for table in one.tables]
        read |= dict.fromkeys(one.tables)
    nodes += [Node(f"table {table}", "table", 2, (table,)) for table in read]
    return Graph(tuple(nodes), tuple(edges))


def runs_of_view(name: str, catalogue: Catalogue, reader: Reader) -> str:
    """When the own operators of a view are brought up to date, in a few words."""
    if not reader.has_goal(name):
        return "runs in every step"
    paces = reader.progress(name).paces
    return paces_said(pace for path, pace in paces.items() if path not in catalogue.subplans)


def paces_said(paces: Iterable[int]) -> str:
    """The paces of something that waits, in a few words.

    >>> paces_said([3, 1, 3]), paces_said([2]), paces_said([0]), paces_said([])
    ('paces 3 and 1', 'pace 2', 'flushes of several sizes, to learn from', 'runs at its trigger')
    """
    found = sorted({*paces}, reverse=True)
    if not found:
        return "runs at its trigger"
    if LEARNING in found:
        return "flushes of several sizes, to learn from"
    return f"{'pace' if len(found) == 1 else 'paces'} {listed(list(map(str, found)))}"


def _others(view: str, apart: Sequence[Apart]) -> Iterator[list[str]]:
    """The views that a view has been taken apart from."""
    return ([other for other in one.views if other != view] for one in apart if view in one.views)
