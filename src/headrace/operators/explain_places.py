"""Where operators run, in words: by what rows are spread over buckets, what moves between stages, and why.

The placement knows fields by position and stages by number. A person asks by which column my rows are spread, and what
has to travel in a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.operators.explained import StageExplained
from headrace.operators.naming import Naming
from headrace.operators.placement import Placer, Way
from headrace.operators.tree_view import TreeView
from headrace.plan.lines import counted, cut, listed
from headrace.plan.tree import Aggregation, Join
from headrace.plan.view import Shape

_BY = 100  # characters of what decides the bucket


@dataclass(frozen=True)
class Places:
    """The placement of one view."""

    kernel: TreeView
    naming: Naming

    @cached_property
    def _placer(self) -> Placer:
        return Placer(self.kernel.tree, self.kernel.sizes, self.kernel.buckets)

    def expected(self, number: int, side: int) -> int:
        """About how many rows were expected at a port when the view was planned; 0 where nothing was known."""
        return self._placer.side_rows(number, side)

    def moves(self, number: int, side: int, i: int) -> str:
        """How the rows of a feed get to their operator."""
        way = self.kernel.placement.routes[number, side, i].way
        if way is Way.STAY:
            return "stays in its bucket"
        if way is Way.EVERYWHERE:
            return "to every bucket"
        feed = self.kernel.tree.nodes[number].ports[side].feeds[i]
        by = self._names(number, [self.naming.on_the_way(feed, output) for output in feed.outputs])
        return f"by {by}" if by else "to one bucket"

    def _names(self, number: int, columns: Sequence[str]) -> str:
        """Those of the columns of a port that decide the bucket."""
        return cut(", ".join(columns[i] for i in self.kernel.placement.places[number].partition), _BY)

    def where(self, number: int) -> str:
        """In which bucket an operator has a row: by the columns of its left side, or of the one that is spread."""
        node, place = self.kernel.tree.nodes[number], self.kernel.placement.places[number]
        side = 0 if place.everywhere is None else 1 - place.everywhere
        is_bag = isinstance(node, Aggregation) and node.plan.shape is Shape.ROWS
        if place.everywhere is None and not is_bag:
            return self._spread(number, side)
        # Any bucket would do, so each row is where it was before.
        feeds = node.ports[side].feeds
        by = (self._spread(number, side) if f.producer is None else self.where(f.producer) for f in feeds)
        return " and ".join(dict.fromkeys(by))

    def _spread(self, number: int, side: int) -> str:
        by = self._names(number, self.naming.port(number, side))
        return f"by hash of {by}" if by else "in one bucket"

    def why_everywhere(self, number: int, side: int) -> str | None:
        """Why every bucket has a side of a join; None if it has not."""
        if self.kernel.placement.places[number].everywhere != side:
            return None
        node = self.kernel.tree.nodes[number]
        mine, other = (self.expected(number, s) for s in (side, 1 - side))
        if isinstance(node, Join) and not node.keys:
            return "no column says which rows it is joined with, so it must meet all of them"
        return (
            f"it was expected to have {counted(mine, 'row')} and the other side {other:,}, so {self.kernel.buckets} "
            "copies of it are less than what would have to move"
        )

    def stages(self) -> list[StageExplained]:
        """The stages, in the order in which they run."""
        places = self.kernel.placement.places
        return [
            StageExplained(
                stage + 1,
                tuple(number for number, place in enumerate(places) if place.stage == stage),
                tuple(self._arriving(stage)),
            )
            for stage in range(self.kernel.placement.stages)
        ]

    def _arriving(self, stage: int) -> Iterator[str]:
        """What is exchanged between operators of earlier stages and this one."""
        placement = self.kernel.placement
        for number, side, i, feed in self.kernel.tree.feeds():
            if feed.producer is None or placement.places[number].stage != stage:
                continue
            route = placement.routes[number, side, i]
            if route.way is not Way.STAY:
                yield f"what [{feed.producer}] gives, {self.moves(number, side, i)}"
            elif route.catalyst is not None:
                yield f"what [{feed.producer}] gives, by way of Catalyst and back to its bucket"

    def exchanged(self, stages: Sequence[StageExplained]) -> tuple[str, ...]:
        """What each exchange of a step moves."""
        by_way: dict[str, list[str]] = {}
        for number, side, i, feed in self.kernel.tree.feeds():
            if feed.producer is None:
                by_way.setdefault(self.moves(number, side, i), []).append(feed.source)
        tables = "; ".join(f"{listed(sources)} {way}" for way, sources in by_way.items())
        later = (f"before stage {s.number}: {'; '.join(s.arrives)}" for s in stages if s.arrives)
        return (f"changed rows of {tables}", *later)
