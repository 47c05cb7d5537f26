"""The graph of a plan as values: what flows from where to where, and which of it belongs together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """Something that rows come from or go to.

    Its kind decides its look, and what the legend says of that: see `drawing`.
    """

    name: str
    kind: str
    layer: int  # from the top; what flows into a node is below it
    lines: tuple[str, ...]  # the first is its title
    notes: tuple[str, ...] = ()  # said less loudly
    about: str = ""  # all that has no room
    share: float | None = None  # of a bar that is filled


@dataclass(frozen=True)
class Edge:
    """What flows from a lower node up to another. Its kind decides its colour."""

    upper: str
    lower: str
    kind: str = "joined"
    lines: tuple[str, ...] = ()
    about: str = ""


@dataclass(frozen=True)
class Band:
    """Layers that belong together."""

    title: str
    first: int
    last: int


@dataclass(frozen=True)
class Graph:
    """A plan, the answer on top."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    bands: tuple[Band, ...] = ()
