"""Where operators run: which of them share a bucket, and what has to move between buckets.

An operator that searches for keys needs equal keys in one bucket. Rows that are already partitioned by (some of) these
keys stay where they are, so operators on one key are one stage; other rows are exchanged. If one side of a join is much
smaller than the other, it is copied to every bucket instead, and no row of the other side has to move. If the small
side is itself the result of a join, every bucket computes that join: its inputs are small too, and an exchange is
saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from headrace.operators.feeds import why_catalyst
from headrace.plan.tree import Aggregation, Feed, FeedId, Join, JoinKind, Over, Top, Tree
from headrace.plan.view import Shape

Names = tuple[str, ...]
Places = tuple[int, ...]


class Way(Enum):
    """How rows get from where they are to their operator."""

    STAY = "stays in its bucket"
    EXCHANGE = "is exchanged"
    EVERYWHERE = "goes to every bucket"


@dataclass(frozen=True)
class Place:
    """Where one operator runs.

    Parameters
    ----------
    partition : the keys whose values decide the bucket. For a join with one side in every bucket: the fields of the
        other side by which rows of tables are spread.
    everywhere : the sides of a join that are in every bucket.
    """

    stage: int
    partition: Places
    everywhere: Places
    why: str

    @property
    def spread_side(self) -> int:
        """The side of a join that is spread over buckets."""
        return 1 if self.everywhere == (0,) else 0


@dataclass(frozen=True)
class Route:
    """How a feed's rows get to their operator, and whether Catalyst evaluates them on the way."""

    way: Way
    catalyst: str | None = None  # why Catalyst evaluates them; None if it does not
    partition: Places | None = None  # the fields that decide the bucket; None if it is those of the operator


@dataclass(frozen=True)
class Placement:
    """The places of all operators, the routes of all feeds, and where the rows of each side lie.

    Rows that stay where an earlier operator gave them may lie in any bucket, if they do not have the fields that
    decided it; `lies` is None then.
    """

    places: tuple[Place, ...]
    routes: dict[FeedId, Route]
    lies: dict[tuple[int, int], Places | None]  # per operator and side: the fields that decide the bucket of its rows

    @property
    def stages(self) -> int:
        return 1 + max(place.stage for place in self.places)


@dataclass(frozen=True)
class Placer:
    """Places the operators of one tree.

    Parameters
    ----------
    sizes : rows of each source, as far as they are known.
    by_catalyst : let Catalyst evaluate all feeds, also those that kernels could evaluate.
    given : operators that run elsewhere, each with the stage in which it gives its rows.
    """

    tree: Tree
    sizes: Mapping[str, int]
    buckets: int
    by_catalyst: bool = False
    given: Mapping[int, int] = field(default_factory=dict)

    def place(self) -> Placement:
        """Decide for every operator, from the tables upwards."""
        places: list[Place] = []
        routes: dict[FeedId, Route] = {}
        lies: dict[tuple[int, int], Places | None] = {}
        for number, node in enumerate(self.tree.nodes):
            partition, why = self._partition[number][0], self._why(number)
            everywhere = self._everywhere(number)
            # A total has a row before any input row has come; it gives this row after the first stage.
            stage = int(number in self.tree.totals)
            for side, port in enumerate(node.ports):
                lies[number, side] = self._lies(number, side)
                for i, feed in enumerate(port.feeds):
                    way, by = self._way(number, side, feed), None
                    reason = None if feed.producer is None else self._reason(feed)
                    if feed.producer in self.given and way is Way.STAY:
                        # Rows that are given from elsewhere are brought to where they would have stayed.
                        way, by = (Way.EVERYWHERE, None) if side in everywhere else (Way.EXCHANGE, lies[number, side])
                    routes[number, side, i] = Route(way, reason, by)
                    if feed.producer is not None:
                        moved = way is not Way.STAY or reason is not None
                        stage = max(stage, places[feed.producer].stage + moved)
            places.append(Place(self.given.get(number, stage), partition, everywhere, why))
        return Placement(tuple(places), routes, lies)

    def _why(self, number: int) -> str:
        """Why an operator runs where it does."""
        everywhere = self._everywhere(number)
        spread = 1 - everywhere[0] if len(everywhere) == 1 else 0
        ways = {self._way(number, spread, feed) for feed in self.tree.nodes[number].ports[spread].feeds}
        from_operators = any(feed.producer is not None for feed in self.tree.nodes[number].ports[spread].feeds)
        if from_operators and Way.STAY not in ways:
            if len(everywhere) == 1:
                return "one side is in every bucket; rows of the other do not tell their bucket, so they are exchanged"
            if self._is_bag(number):
                return "rows of the answer do not tell which bucket gave them, so their own columns decide"
        return self._partition[number][1]

    def _reason(self, feed: Feed) -> str | None:
        computes = any(expression.op != "column" for expression in feed.expressions)
        return why_catalyst(feed) or ("it raised" if self.by_catalyst and computes else None)

    # -- what is in every bucket ------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """About how many rows each operator gives at most; 0 where nothing is known."""
        found: list[int] = []
        for node in self.tree.nodes:
            given = [sum(self._rows_of(feed, found) for feed in port.feeds) for port in node.ports]
            if isinstance(node, Top):
                found.append(min(node.count, given[0]))
            elif isinstance(node, Aggregation) and not node.keys:
                found.append(1)
            elif isinstance(node, Join) and not node.kind.pairs:
                found.append(given[0])
            else:
                found.append(max(given))
        return tuple(found)

    def _rows_of(self, feed: Feed, rows: Sequence[int]) -> int:
        return self.sizes.get(feed.source, 0) if feed.producer is None else rows[feed.producer]

    def side_rows(self, number: int, side: int) -> int:
        """About how many rows enter a port."""
        return sum(self._rows_of(feed, self.rows) for feed in self.tree.nodes[number].ports[side].feeds)

    def _everywhere(self, number: int) -> Places:
        """The sides of an operator that are in every bucket."""
        if number in self._copied:
            return (0, 1)
        side = self._small_side(number)
        return () if side is None else (side,)

    @cached_property
    def _copied(self) -> frozenset[int]:
        """Joins that every bucket computes for itself, because all their readers want their rows in every bucket."""
        out: set[int] = set()
        for number in reversed(range(len(self.tree.nodes))):
            node = self.tree.nodes[number]
            readers = [(n, side, feed) for n, side, _, feed in self.tree.feeds() if feed.producer == number]
            if isinstance(node, Join) and node.kind is JoinKind.INNER and node.keys and readers:
                # Catalyst would evaluate such a feed once per bucket.
                wanted = (n in out or self._small_side(n) == side for n, side, _ in readers)
                if all(wanted) and not any(self._reason(feed) for _, _, feed in readers):
                    out.add(number)
        return frozenset(out)

    def _small_side(self, number: int) -> int | None:
        """The side of a join that is much smaller than the other; None if there is none."""
        node = self.tree.nodes[number]
        if not isinstance(node, Join) or node.kind in (JoinKind.FULL, JoinKind.NULL_AWARE):
            return None  # rows of both sides are given alone, or rows of all buckets decide: keys must be in one bucket
        left, right = (self.side_rows(number, side) for side in (0, 1))
        if not node.keys:
            return 0 if node.kind is JoinKind.INNER and 0 < left < right else 1
        if 0 < right * self.buckets <= left:
            return 1
        if node.kind is JoinKind.INNER and 0 < left * self.buckets <= right:
            return 0
        return None

    # -- what is partitioned by what ----------------------------------------------------------------------------------

    @cached_property
    def _partition(self) -> tuple[tuple[Places, str], ...]:
        decided: list[tuple[Places, str]] = []
        for number in range(len(self.tree.nodes)):
            decided.append(self._decide(number, decided))
        return tuple(decided)

    def _decide(self, number: int, decided: list[tuple[Places, str]]) -> tuple[Places, str]:
        node = self.tree.nodes[number]
        everywhere = self._everywhere(number)
        if len(everywhere) == 2:
            return (), "what it gives is wanted in every bucket, so each has both sides and joins them itself"
        if everywhere:
            return self._spread(number, 1 - everywhere[0]), "one side is in every bucket, the other stays where it is"
        if not node.keys:
            return (), "there is one row, or one order of all rows, so one bucket has it"
        if self._is_bag(number):
            return tuple(
                range(node.keys)
            ), "rows of the answer may lie in any bucket, and stay in that which gives them"
        best: tuple[int, Places] = (0, ())
        for port in node.ports:
            for feed in port.feeds:
                for partition in self._given(feed, decided):
                    if partition and max(partition) < node.keys:
                        score = self._score(number, partition, decided)
                        best = max(best, (score, partition), key=lambda pair: pair[0])
        if best[0]:
            return best[1], "rows that come from operators are partitioned so already"
        wish = self._wish(number)
        places = tuple(p for p in (node.given_at(name) for name in wish) if p is not None and p < node.keys)
        if wish and len(places) == len(wish):
            return places, "the next join needs it so"
        return tuple(range(node.keys)), "equal keys must meet"

    def _is_bag(self, number: int) -> bool:
        """Whether an operator only counts rows: the answer of a query without groups.

        Its rows may stay in any bucket: in each bucket the input adds up to a bag, so no count there becomes negative.
        """
        node = self.tree.nodes[number]
        return isinstance(node, Aggregation) and node.plan.shape is Shape.ROWS

    def _score(self, number: int, partition: Places, decided: list[tuple[Places, str]]) -> int:
        """How many rows stay where they are with this partition."""
        total = 0
        for port in self.tree.nodes[number].ports:
            for feed in port.feeds:
                if feed.producer is not None and partition in self._given(feed, decided):
                    total += 1 + self.rows[feed.producer]
        return total

    def _given(self, feed: Feed, decided: Sequence[tuple[Places, str]]) -> list[Places]:
        """The fields of its port by which the rows of a feed are already partitioned: all alternatives."""
        if feed.producer is None:
            return []
        found = []
        for names in self._partitioned(feed.producer, decided):
            places = [_output(feed, name) for name in names]
            if None not in places:
                found.append(tuple(p for p in places if p is not None))
        return found

    def _partitioned(self, number: int, decided: Sequence[tuple[Places, str]]) -> list[Names]:
        """The fields by which the output rows of an operator are partitioned: all alternatives."""
        node, (partition, _) = self.tree.nodes[number], decided[number]
        if isinstance(node, Aggregation | Top):
            return [tuple(f"k{i}" for i in partition)]
        if isinstance(node, Over):
            return [tuple(node.port.fields[i].name for i in partition)]
        everywhere = self._everywhere(number)
        if everywhere:
            return self._still(number, 1 - everywhere[0], decided) if len(everywhere) == 1 else []
        sides = {JoinKind.INNER: (0, 1), JoinKind.FULL: ()}.get(node.kind, (0,))
        named = [tuple(node.ports[side].fields[i].name for i in partition) for side in sides]
        return [names for names in named if set(names) <= set(node.outputs)]

    def _still(self, number: int, side: int, decided: Sequence[tuple[Places, str]]) -> list[Names]:
        """The fields by which the rows of a side that does not move are partitioned: all alternatives."""
        node = self.tree.nodes[number]
        port = node.ports[side]
        alternatives = self._stay_by(number, side, decided) or [decided[number][0]]
        named = [tuple(port.fields[i].name for i in places) for places in alternatives]
        given = {field.name for field in node.fields}
        return [names for names in named if set(names) <= given]

    def _stay_by(self, number: int, side: int, decided: Sequence[tuple[Places, str]]) -> list[Places]:
        """The fields by which rows that any bucket could take are partitioned if they stay where they are.

        All alternatives; none if the rows do not tell where they are. Such rows are exchanged, since only rows that
        tell their bucket can be changed in one pass over all buckets.
        """
        common: list[Places] | None = None
        for feed in self.tree.nodes[number].ports[side].feeds:
            own = [decided[number][0]] if feed.producer is None else self._given(feed, decided)
            common = own if common is None else [places for places in common if places in own]
        return common or []

    def _lies(self, number: int, side: int) -> Places | None:
        """The fields that decide in which bucket the rows of a side lie; None if that cannot be told from the rows."""
        common: list[Places] | None = None
        for feed in self.tree.nodes[number].ports[side].feeds:
            stays = self._way(number, side, feed) is Way.STAY
            own = self._given(feed, self._partition) if stays else [self._partition[number][0]]
            common = own if common is None else [places for places in common if places in own]
        return common[0] if common else None

    def _spread(self, number: int, side: int) -> Places:
        """The fields by which rows of tables are spread, where any bucket would do."""
        node = self.tree.nodes[number]
        port = node.ports[side]
        names = [field.name for field in port.fields]
        wish = self._wish(number)
        if wish and set(wish) <= set(names):
            return tuple(names.index(name) for name in wish)
        lasting, keys = self._lasting(number, side), tuple(range(node.keys or len(names)))
        return keys if set(keys) <= set(lasting) else lasting or keys

    def _lasting(self, number: int, side: int) -> Places:
        """The fields of a side that its rows still have wherever they stay in their bucket from here on.

        Rows that are spread by these tell their bucket in all later joins, and need no exchange in between.
        """
        node = self.tree.nodes[number]
        names = {own.name for own in node.fields}
        given = [i for i, own in enumerate(node.ports[side].fields) if own.name in names]
        for consumer, port, _, feed in self.tree.feeds():
            if feed.producer == number and self._takes_any(consumer, port):
                at = {i: _output(feed, node.ports[side].fields[i].name) for i in given}
                is_join = isinstance(self.tree.nodes[consumer], Join)
                last = self._lasting(consumer, port) if is_join else range(self.tree.nodes[consumer].keys)
                given = [i for i in given if at[i] in last]
        return tuple(given)

    def _takes_any(self, number: int, side: int) -> bool:
        """Whether rows of a side may lie in any bucket: the other side is in every bucket, or they are a bag."""
        everywhere = self._everywhere(number)
        return self._is_bag(number) or (len(everywhere) == 1 and side not in everywhere)

    def _wish(self, number: int) -> Names:
        """The output fields by which the one reader of this operator would like its rows to be partitioned."""
        readers = [(n, side, feed) for n, side, _, feed in self.tree.feeds() if feed.producer == number]
        if len(readers) != 1:
            return ()
        consumer, side, feed = readers[0]
        node = self.tree.nodes[consumer]
        if not isinstance(node, Join):
            return ()
        everywhere = self._everywhere(consumer)
        if side in everywhere:
            return ()
        places: Sequence[int | None] = range(node.keys)
        if everywhere:
            names = [field.name for field in node.ports[side].fields]
            places = [names.index(name) if name in names else None for name in self._wish(consumer)]
        found = [None if p is None else _column(feed, p) for p in places]
        return () if None in found else tuple(name for name in found if name is not None)

    def _way(self, number: int, side: int, feed: Feed) -> Way:
        everywhere = self._everywhere(number)
        if side in everywhere:
            return Way.STAY if feed.producer in self._copied else Way.EVERYWHERE
        if feed.producer is None:
            return Way.EXCHANGE
        if everywhere or self._is_bag(number):
            return Way.STAY if self._stay_by(number, side, self._partition) else Way.EXCHANGE
        node = self.tree.nodes[number]
        if isinstance(node, Join) and node.kind is JoinKind.NULL_AWARE and side == 1:
            return Way.EXCHANGE  # every bucket has to know whether there are any values, and whether one is NULL
        given = self._given(feed, self._partition)
        return Way.STAY if self._partition[number][0] in given else Way.EXCHANGE


def _output(feed: Feed, name: str) -> int | None:
    """The position at which a feed passes on a field of its producer unchanged; None if it does not."""
    for i, output in enumerate(feed.outputs):
        if output.op == "column" and output.value == name:
            return i
    return None


def _column(feed: Feed, place: int) -> str | None:
    """The field of its producer that a feed passes on unchanged at a position; None if it computes that column."""
    output = feed.outputs[place]
    return str(output.value) if output.op == "column" else None
