"""A view kept by a tree of operators, as the runtime sees it.

In a stage, each bucket runs its operators one after the other: arriving changes are pushed into them, and the changes
that they give on `flush` go to operators of the same stage directly, and to others through the runtime. Nothing here
knows where a bucket runs; the inline and the Spark executor both call the same functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.changes import Changes, RowLayout, null_in
from headrace.operators.delivery import Delivery, Destination, one_bucket
from headrace.operators.dropping import Rebuild
from headrace.operators.feeds import fed, repeated
from headrace.operators.group import GroupLayout, GroupOperator
from headrace.operators.join import JoinLayout
from headrace.operators.keeping import Keeping
from headrace.operators.kernel import (
    Evaluated,
    Incoming,
    Inlet,
    InOnePass,
    Lifted,
    MapSide,
    Reduced,
    Sent,
    State,
    Traffic,
    ViewChange,
    ViewKernel,
)
from headrace.operators.layout import ViewLayout
from headrace.operators.not_in import NotInLayout
from headrace.operators.operator import Operator, OperatorLayout, given
from headrace.operators.over import OverLayout
from headrace.operators.placement import Placement, Placer
from headrace.operators.top import TopLayout
from headrace.plan.expression import Expression
from headrace.plan.paths import Path, paths_of, with_given
from headrace.plan.tree import Aggregation, Feed, FeedId, Join, JoinKind, Over, Tree
from headrace.relation.residence import Residence
from headrace.relation.run import Run
from headrace.rings import COUNT, Group

_FEED = "feed"


@dataclass(frozen=True)
class Given:
    """Rows that a shared subplan gives in place of an operator of a view.

    Parameters
    ----------
    by : the name of the shared subplan.
    feed : which rows of its operator `feed.producer` these are, and a column per field of the view's operator.
    stage : the last stage in which that operator may run.
    """

    by: str
    feed: Feed
    stage: int


@dataclass(frozen=True)
class Follower:
    """A view that reads what a shared subplan gives, in place of its own operator `number`."""

    view: str
    kernel: TreeView
    number: int


@dataclass(frozen=True)
class TreeView(ViewKernel):
    """A maintained view of any query, or a subplan that several views share.

    Parameters
    ----------
    sizes : rows of each source when the view was planned.
    static : tables that never change once the view is there.
    growing : tables whose rows are never deleted.
    by_catalyst : let Catalyst evaluate all feeds, because the kernels' evaluation raised for some row.
    given : the operators in whose place a shared subplan gives rows. They do not run here, nor do those below them.
    answers : whether the last operator keeps the answer of the view; a shared subplan has none.
    followers : the views that read this shared subplan, or the answer of this view.
    unkept : parts that are dropped for now; a step that reads them is preceded by one that makes them again.
    rebuild : makes some parts again, and does nothing else.
    placed_for : the number of buckets that its operators were placed for, if there are others now: what is copied to
        every bucket, and which rows meet where, stays as it was. 0 if there are still as many.
    """

    tree: Tree
    seed: int
    buckets: int
    sizes: Mapping[str, int]
    static: frozenset[str] = frozenset()
    growing: frozenset[str] = frozenset()
    by_catalyst: bool = False
    given: Mapping[int, Given] = field(default_factory=dict)
    answers: bool = True
    followers: tuple[Follower, ...] = ()
    unkept: frozenset[str] = frozenset()
    rebuild: Rebuild | None = None
    placed_for: int = 0

    @property
    def never_by_catalyst(self) -> bool:
        return not self.answers

    def evaluated_by_catalyst(self) -> TreeView:
        """The same view over the same state, with Catalyst in place of kernels between operators."""
        changed = self._with_followers(lambda kernel: kernel.evaluated_by_catalyst())
        return changed if self.never_by_catalyst else replace(changed, by_catalyst=True)

    def _with_followers(self, change: Callable[[TreeView], TreeView]) -> TreeView:
        return replace(self, followers=tuple(replace(one, kernel=change(one.kernel)) for one in self.followers))

    @property
    def alone(self) -> TreeView:
        """The same view without sharing; its own operators have their state in the same places."""
        return replace(self, given={}) if self.given else self

    @cached_property
    def own(self) -> frozenset[int]:
        """The operators that run here: those that the answer needs, or all of a shared subplan."""
        if self.rebuild is not None:
            return self.rebuild.operators
        if not self.answers:
            return frozenset(range(len(self.tree.nodes)))
        return self.tree.from_top(len(self.tree.nodes) - 1, self.given)

    @property
    def _own_layouts(self) -> Iterator[tuple[int, OperatorLayout]]:
        return ((number, layout) for number, layout in enumerate(self.layouts) if number in self.own)

    @cached_property
    def placement(self) -> Placement:
        given = {number: one.stage for number, one in self.given.items()}
        return Placer(self.tree, self.sizes, self.placed_for or self.buckets, self.by_catalyst, given).place()

    def rebucketed(self, buckets: int) -> TreeView:
        """The same view in another number of buckets, with its operators placed as they are."""
        return replace(self, buckets=buckets, placed_for=self.placed_for or self.buckets)

    @cached_property
    def keeping(self) -> Keeping:
        """What joins keep, and why."""
        return Keeping(self.tree, self.static, self.growing)

    @cached_property
    def layouts(self) -> tuple[OperatorLayout, ...]:
        """The layout of each operator's state. Only here does a view ask of what kind its operators are."""
        return tuple(
            self._layout(number, "" if self._is_answer(number) else str(number))
            for number in range(len(self.tree.nodes))
        )

    def _is_answer(self, number: int) -> bool:
        return self.answers and number == len(self.tree.nodes) - 1

    def _layout(self, number: int, name: str) -> OperatorLayout:
        node = self.tree.nodes[number]
        if isinstance(node, Join):
            kind = NotInLayout if node.kind is JoinKind.NULL_AWARE else JoinLayout
            left, right = (self.keeping.why_kept(number, side) is not None for side in (0, 1))
            return kind(node, name, self.seed, (left, right), self.keeping.settles(number))
        if isinstance(node, Aggregation):
            return GroupLayout(node, name, self.seed)
        if isinstance(node, Over):
            return OverLayout(node, name, self.seed)
        return TopLayout(node, name, self.seed)

    @property
    def layout(self) -> ViewLayout:
        """The layout of the answer."""
        root = self.layouts[-1]
        assert isinstance(root, GroupLayout)
        return root.view

    # -- the protocol of a view -----------------------------------------------------------------------------------

    @cached_property
    def _sources(self) -> dict[str, tuple[FeedId, Feed]]:
        return {
            feed.source: ((n, side, i), feed)
            for n, side, i, feed in self.tree.feeds()
            if feed.producer is None and self._takes(n, side)
        }

    def _takes(self, number: int, side: int) -> bool:
        """Whether rows reach a port of an operator that runs here."""
        return number in self.own and (self.rebuild is None or (number, side) in self.rebuild.ports)

    @cached_property
    def sides(self) -> tuple[MapSide, ...]:
        return tuple(
            MapSide(f.table, f.source, f.condition, f.outputs, () if f.times is None else (f.times,))
            for _, f in self._sources.values()
        )

    @property
    def row_keys(self) -> list[tuple[str, tuple[Expression, ...]]]:
        if len(self.tree.nodes) > 1 or not self.answers:
            return []
        keys = self.tree.root.keys
        return [(feed.table, feed.outputs[:keys]) for feed in self.tree.root.port.feeds]

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        return {
            part: ring
            for _, layout in self._own_layouts
            for part, ring in layout.arrangements.items()
            if self._keeps(part)
        }

    def _keeps(self, part: str) -> bool:
        if self.rebuild is not None:
            return part in self.rebuild.parts or part in self.rebuild.read
        return part not in self.unkept

    @cached_property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        out: list[list[str]] = [[] for _ in range(self.placement.stages)]
        for number, layout in self._own_layouts:
            out[self.placement.places[number].stage] += filter(self._keeps, layout.arrangements)
        return tuple(map(tuple, out))

    @cached_property
    def _shared(self) -> frozenset[str]:
        """Parts that are the same in every bucket, so that one bucket stores them for all."""
        placed = zip(self.layouts, self.placement.places, strict=True)
        return frozenset(part for layout, place in placed for part in layout.shared(place.everywhere))

    def home(self, part: str, bucket: int) -> int:
        return 0 if part in self._shared else bucket

    @cached_property
    def in_one_pass(self) -> InOnePass | None:
        residences = {}
        for number, layout in self._own_layouts:
            for part in layout.arrangements:
                residence = self._residence(number, layout, part)
                if residence is None:
                    return None
                residences[part] = residence
        return InOnePass(replace(self, buckets=1, placed_for=0)._with_followers(_in_one_bucket), residences)

    def _residence(self, number: int, layout: OperatorLayout, part: str) -> Residence | None:
        """In which bucket each entry of a part lies; None if the entries do not tell."""
        if part in self._shared:
            return Residence(self.buckets, None, self.home(part, 0))
        places = self.placement.lies[number, layout.side_of(part)]
        if places == ():
            return Residence(self.buckets, None, one_bucket(self.buckets))
        lead = None if places is None else layout.decides(part, places)
        if places is None or lead is None:
            return None
        return Residence(self.buckets, lead, by_key=layout.searched_by(part, places))

    def whereabouts(self, part: str) -> tuple[object, ...] | None:
        """What decides in which bucket the entries of a part lie; None if the entries do not tell."""
        number = self.owner(part)
        layout = self.layouts[number]
        if self._residence(number, layout, part) is None:
            return None
        return ("in every bucket",) if part in self._shared else self.placement.lies[number, layout.side_of(part)]

    @cached_property
    def inlets(self) -> Mapping[str, Inlet]:
        out = {}
        for number, layout in self._own_layouts:
            for part in (part for part in layout.accepts if part not in layout.first):
                ring, stage = layout.arrangements.get(part, COUNT), self.placement.places[number].stage
                out[part] = Inlet(ring, stage, self._residence(number, layout, part), part in self._shared)
        return out

    @cached_property
    def reading(self) -> Tree:
        """The tree in which rows that a shared subplan gives are read as those of a table with its name."""
        return with_given(self.tree, {number: one.by for number, one in self.given.items()})

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Where changes can wait on their way through the operators that run here."""
        return tuple(path for path in paths_of(self.reading) if path.number in self.own)

    @cached_property
    def holds(self) -> Mapping[str, tuple[str, ...]]:
        """Changes wait before aggregates and tops, and those of tables and of shared subplans before joins.

        A join hands on at once what an operator gives it: its pairs wait before the next aggregate or top.
        """
        out = {}
        for path in self.paths:
            layout = self.layouts[path.number]
            parts = [part for part in layout.accepts if part not in layout.first]
            out[path.name] = tuple(part for part in parts if not path.is_source or layout.side_of(part) == path.side)
        return out

    @cached_property
    def seeds(self) -> Lifted:
        parts = {part: run for _, layout in self._own_layouts for part, run in layout.first.items()}
        return {one_bucket(self.buckets): parts} if parts else {}

    def come_again(self, part: str, run: Run) -> Run:
        """Entries of a part as changes that would lead to them."""
        return self.layouts[self._owner[part]].come_again(part, run)

    def refused(self, source: str, rows: Evaluated) -> dict[int, str]:
        (number, _, _), _ = self._sources[source]
        return self.layouts[number].refused(rows)

    def lift(self, source: str, rows: Evaluated, buckets: int) -> Lifted:
        feed_id, feed = self._sources[source]
        fields = self.tree.nodes[feed_id[0]].ports[feed_id[1]].fields
        missing = null_in([rows.keys[i] for i in feed.required])
        if missing is not None:
            rows = rows.take(np.flatnonzero(~missing))
        diff = rows.diff if feed.times is None else repeated(rows.diff, rows.arguments[0])
        changes = Changes({field.name: column for field, column in zip(fields, rows.keys, strict=True)}, diff)
        out: Lifted = {}
        for bucket, part, run in self._deliver(feed_id, changes, None):
            out.setdefault(bucket, {})[part] = run
        return out

    def reduce(
        self, stage: int, bucket: int, state: State, incoming: Incoming, waiting: Collection[str] = ()
    ) -> Reduced:
        operators: dict[int, Operator] = {}
        done = Reduced()
        for part, runs in incoming.items():
            number = self._owner[part]
            if part in waiting:
                done.held.setdefault(part, []).extend(runs)
            elif self.placement.places[number].stage == stage:
                operator = self._operator(operators, number, state)
                for run in runs:
                    operator.push(part, run)
            else:
                done.sent.extend(Sent(self.placement.places[number].stage, bucket, part, run) for run in runs)
        start = time.thread_time()
        for number, place in enumerate(self.placement.places):
            operator_ = operators.get(number)
            if place.stage == stage and operator_ is not None:
                done = self._run(number, operator_, bucket, state, operators, waiting, done)
                start, before = time.thread_time(), start
                _count(done, number, Traffic(cpu=start - before))
        return done

    # -- one operator -------------------------------------------------------------------------------------------------

    def _deliver(self, feed_id: FeedId, changes: Changes, bucket: int | None) -> Iterable[Delivery]:
        """Split the changes of a feed into runs, each with the bucket and the part that it goes to."""
        if not changes.rows:
            return ()
        number, side, _ = feed_id
        route, partition = self.placement.routes[feed_id], self.placement.places[number].partition
        partition = partition if route.partition is None else route.partition
        to = Destination(route.way, partition, self.buckets, self.seed, bucket)
        return self.layouts[number].deliver(side, changes, to)

    def _operator(self, operators: dict[int, Operator], number: int, state: State) -> Operator:
        if number not in operators:
            layout = self.layouts[number]
            operators[number] = layout.operator(
                {part: state[part] for part in layout.arrangements if self._keeps(part)}
            )
        return operators[number]

    def _run(
        self,
        number: int,
        operator: Operator,
        bucket: int,
        state: State,
        operators: dict[int, Operator],
        waiting: Collection[str],
        done: Reduced,
    ) -> Reduced:
        changes = None
        if self.rebuild is None or self._readers[number] or self._is_answer(number):
            changes = operator.flush()
        else:
            operator.absorb()
        for part, run in operator.runs.items():
            if run.rows and (bucket == 0 or part not in self._shared) and part in self.arrangements:
                done.runs[part] = run
                done.live[part] = operator.live[part]
        once = bucket == 0 or len(self.placement.places[number].everywhere) < 2  # what all buckets do counts once
        if once:
            _count(done, number, self._traffic(number, operator, changes, bucket))
        if self._is_answer(number):
            done = replace(done, changes=operator.reduced.changes, summary=operator.reduced.summary)
            if self.followers and isinstance(operator, GroupOperator):
                changes = operator.changed()
        if changes is not None and changes.rows:
            for feed_id, feed in self._readers[number]:
                self._pass_on(feed_id, feed, number, changes, bucket, state, operators, waiting, done)
            for one in self.followers if once else ():
                if one.kernel.given[one.number].feed.producer == number:
                    received = one.kernel.received(one, changes, bucket)
                    done.sent.extend(replace(sent, view=one.view) for sent in received.sent)
                    fed_there = done.fed.setdefault(one.view, {})
                    fed_there.update((n, more + fed_there.get(n, Traffic())) for n, more in received.traffic.items())
        return done

    def received(self, as_follower: Follower, changes: Changes, bucket: int) -> Reduced:
        """Hand changes of a shared subplan on to the operators that read the one in whose place they are given."""
        number, done = as_follower.number, Reduced()
        rows = fed(self.given[number].feed, changes, self.tree.nodes[number].fields)
        if rows.rows:
            for feed_id, feed in self._readers[number]:
                self._pass_on(feed_id, feed, number, rows, bucket, {}, {}, (), done)
        return done

    def _traffic(self, number: int, operator: Operator, changes: Changes | None, bucket: int) -> Traffic:
        copied = self.placement.places[number].everywhere if bucket else ()  # counted where it is stored
        left, right = (ViewChange() if side in copied else operator.taken[side] for side in (0, 1))
        gave = operator.reduced.summary if self._is_answer(number) else given(changes, self.layouts[number].output_keys)
        return Traffic(left + right, gave or ViewChange(), right, operator.reduced.groups)

    @cached_property
    def _readers(self) -> dict[int, list[tuple[FeedId, Feed]]]:
        out: dict[int, list[tuple[FeedId, Feed]]] = {number: [] for number in range(len(self.tree.nodes))}
        for n, side, i, feed in self.tree.feeds():
            if feed.producer is not None and self._takes(n, side):
                out[feed.producer].append(((n, side, i), feed))
        return out

    def _pass_on(
        self,
        feed_id: FeedId,
        feed: Feed,
        number: int,
        changes: Changes,
        bucket: int,
        state: State,
        operators: dict[int, Operator],
        waiting: Collection[str],
        done: Reduced,
    ) -> None:
        stage = self.placement.places[feed_id[0]].stage
        if self.placement.routes[feed_id].catalyst is not None:
            done.sent.append(Sent(stage, bucket, feed_part(feed_id), self.given_rows(number).run(changes)))
            return
        fields = self.tree.nodes[feed_id[0]].ports[feed_id[1]].fields
        here = stage == self.placement.places[number].stage
        rows = fed(feed, changes, fields)
        _count(done, feed_id[0], Traffic(fed=int(np.abs(rows.diff).sum())))
        for to, part, run in self._deliver(feed_id, rows, bucket):
            if here and part in waiting:
                done.held.setdefault(part, []).append(run)
            elif here:
                self._operator(operators, feed_id[0], state).push(part, run)
            else:
                done.sent.append(Sent(stage, to, part, run))

    def given_rows(self, number: int) -> RowLayout:
        """The layout in which an operator's rows travel to Catalyst."""
        return RowLayout(self.tree.nodes[number].fields, 0, (), self.seed)

    def delivered(
        self, feed_id: FeedId, columns: list[pa.Array], diff: NDArray[np.int64], times: pa.Array | None, bucket: int
    ) -> list[Sent]:
        """Send on the rows of a feed, from one bucket, that Catalyst has evaluated."""
        fields = self.tree.nodes[feed_id[0]].ports[feed_id[1]].fields
        diff = diff if times is None else repeated(diff, times)
        changes = Changes({field.name: column for field, column in zip(fields, columns, strict=True)}, diff)
        stage = self.placement.places[feed_id[0]].stage
        return [Sent(stage, to, part, run) for to, part, run in self._deliver(feed_id, changes, bucket)]

    def feed_of(self, part: str) -> FeedId | None:
        if not part.startswith(f"{_FEED}/"):
            return None
        number, side, i = map(int, part.split("/")[1:])
        return number, side, i

    # -- which part is whose ----------------------------------------------------------------------------------------

    def owner(self, part: str) -> int:
        """The operator that a part belongs to."""
        return self._owner[part]

    @cached_property
    def _owner(self) -> dict[str, int]:
        """The operator that each part is of: what it keeps, and what is delivered to it."""
        parts = ((number, (*layout.arrangements, *layout.accepts)) for number, layout in self._own_layouts)
        return {part: number for number, own in parts for part in own}


def _in_one_bucket(kernel: TreeView) -> TreeView:
    found = kernel.in_one_pass
    assert found is not None, "only views that are kept in one pass share subplans"
    assert isinstance(found.kernel, TreeView)
    return found.kernel


def _count(done: Reduced, number: int, traffic: Traffic) -> None:
    before = done.traffic.get(str(number))
    done.traffic[str(number)] = traffic if before is None else before + traffic


def feed_part(feed_id: FeedId) -> str:
    """The part under which rows travel to Catalyst."""
    return "/".join([_FEED, *map(str, feed_id)])
