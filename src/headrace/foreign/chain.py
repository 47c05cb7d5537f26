"""From a foreign-key graph to chains of joins, each at the place where it can be done.

The rows of a source are joined with its children one after the other: a row that is *alive on* the first child waits
for the second, and one that is alive on all of them is a live row of the source, which its parents wait for in turn.
So the counter s(t) of the paper is how far a row has come, and it is kept by where the row waits. A child is joined
where its key is hashed to; where it is small beside its parent, it is brought to all buckets instead, and the parent
stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.plan.assumptions import UNKNOWN_ROWS
from headrace.plan.foreign import ForeignGraph, Reference
from headrace.plan.rows import JoinedRows

Partition = tuple[str, ...] | None
"""The variables whose hash decides the bucket; None: every bucket has it all."""

_GUESSED_GROWTH = 4  # how many times larger a table is than the largest that it refers to
_KEYS_A_BUCKET = 100


@dataclass(frozen=True)
class Join:
    """Rows of a source that are alive on earlier children, joined with one more child."""

    number: int
    parent: str
    child: str
    key: tuple[str, ...]  # the child's key
    left: tuple[str, ...]  # variables of the rows that wait, the key first
    right: tuple[str, ...]  # variables that the child's live rows bring, the key first
    asserted: tuple[str, ...]  # variables beyond the key that both have: assertion keys
    position: int  # which child of its parent it is, from 0
    last: bool  # what comes out is alive on all children
    level: int
    partition: Partition
    why: str  # why it is done there

    @property
    def waiting(self) -> str:
        """The arrangement of rows that are alive on earlier children, by this child's key: I(R, Rc)."""
        return f"i{self.number}"

    @property
    def live(self) -> str:
        """The arrangement of the child's live rows: L(Rc)."""
        return f"l{self.number}"

    @property
    def left_part(self) -> str:
        """How changes of the rows that wait are called on their way."""
        return f"left{self.number}"

    @property
    def right_part(self) -> str:
        """How changes of the child's live rows are called on their way."""
        return f"right{self.number}"


@dataclass(frozen=True)
class Target:
    """Where changed rows go: the input of a join, with the variables it wants in the order it wants them."""

    part: str
    order: tuple[str, ...]
    level: int
    partition: Partition


@dataclass(frozen=True)
class ChainPlan:
    """All joins of a view, children before the parents that wait for them."""

    graph: ForeignGraph
    joins: tuple[Join, ...]
    replicated: frozenset[str]  # sources that every bucket has

    @cached_property
    def levels(self) -> int:
        """How many stages the joins take."""
        return 1 + max(join.level for join in self.joins)

    @cached_property
    def final(self) -> Join:
        """The last join of the root: what comes out of it is a row of the answer."""
        return next(join for join in self.joins if join.parent == self.graph.root and join.last)

    def of(self, parent: str) -> tuple[Join, ...]:
        """The chain of a source."""
        return tuple(join for join in self.joins if join.parent == parent)

    @cached_property
    def entry(self) -> dict[str, tuple[Target, ...]]:
        """Where the rows of each source enter: its own chain, or its parents' joins where it has no children."""
        return {
            source: (_left(self.of(source)[0]),) if self.of(source) else self._awaited(source)
            for source in self.graph.sources
        }

    def after(self, join: Join) -> tuple[Target, ...]:
        """Where rows go that have passed a join; nowhere, when they are rows of the answer."""
        if not join.last:
            return (_left(self.of(join.parent)[join.position + 1]),)
        return self._awaited(join.parent)

    def _awaited(self, source: str) -> tuple[Target, ...]:
        return tuple(
            Target(j.right_part, j.right, j.level, None if source in self.replicated else j.partition)
            for j in self.joins
            if j.child == source
        )

    def is_shared(self, join: Join, part: str) -> bool:
        """Whether an arrangement of a join is the same in all buckets."""
        return join.partition is None or (part == join.live and join.child in self.replicated)


def _left(join: Join) -> Target:
    return Target(join.left_part, join.left, join.level, join.partition)


def plan_chains(rows: JoinedRows, graph: ForeignGraph, sizes: Mapping[str, int], buckets: int) -> ChainPlan:
    """Choose the order of every chain, and where each join is done, by the rows of each source as far as known."""
    return _Planning(rows, graph, _estimated(graph, sizes), frozenset(sizes), buckets).plan()


def _estimated(graph: ForeignGraph, sizes: Mapping[str, int]) -> dict[str, float]:
    """Sizes with guesses for those that are not known: a table is some times larger than those it refers to."""
    out: dict[str, float] = {}
    for source in graph.sources:
        largest = max((out[r.child] for r in graph.children(source)), default=UNKNOWN_ROWS / _GUESSED_GROWTH)
        out[source] = sizes.get(source) or _GUESSED_GROWTH * largest
    return out


@dataclass
class _Planning:
    rows: JoinedRows
    graph: ForeignGraph
    sizes: Mapping[str, float]
    known: frozenset[str]  # sources whose size is no guess
    buckets: int

    def __post_init__(self) -> None:
        self.replicated = self._replicated()
        self.owner = self._owners()
        self.grouped = frozenset(str(key.value) for key in self.rows.keys if key.op == "column")

    def plan(self) -> ChainPlan:
        joins: list[Join] = []
        produced: dict[str, tuple[int, Partition]] = {}  # where live rows of a source come out
        for source in self.graph.sources:
            joined, level = list[str](), 0
            chain = self._ordered(source)
            partitions = self._partitions(source, chain)
            for position, (reference, partition) in enumerate(zip(chain, partitions, strict=True)):
                left = self._carried(source, joined)
                right = self._brought(reference)
                if position and partition != partitions[position - 1]:
                    level += 1
                level = max(level, self._arrival(reference.child, partition, produced))
                shared = [v for v in right if v in left and v not in reference.key]
                joins.append(
                    Join(
                        number=len(joins),
                        parent=source,
                        child=reference.child,
                        key=reference.key,
                        left=_key_first(reference.key, left),
                        right=_key_first(reference.key, right),
                        asserted=tuple(shared),
                        position=position,
                        last=position == len(chain) - 1,
                        level=level,
                        partition=partition,
                        why=self._why(source, reference, partition),
                    )
                )
                joined.append(reference.child)
            if chain:
                produced[source] = (level, partitions[-1])
        return ChainPlan(self.graph, tuple(joins), self.replicated)

    def _replicated(self) -> frozenset[str]:
        """Sources that are cheaper to bring to every bucket than their parents are to move to them."""
        out: set[str] = set()
        for source in reversed(self.graph.sources[:-1]):
            parents = [reference.parent for reference in self.graph.parents(source)]
            brought = self.graph.below[source]
            if out.intersection(parents):
                out.add(source)  # where its parent is, there it must be
            elif self.known.issuperset(brought) and self.known.issuperset(parents):
                weight = self.buckets * sum(self.sizes[name] for name in brought)
                if weight < min(self.sizes[parent] for parent in parents):
                    out.add(source)
        return frozenset(out)

    def _owners(self) -> dict[str, str]:
        """The parent through which a source's shown variables travel: the smallest, if there are several."""
        return {
            source: min((r.parent for r in self.graph.parents(source)), key=lambda name: self.sizes[name])
            for source in self.graph.sources[:-1]
        }

    def _ordered(self, source: str) -> tuple[Reference, ...]:
        """Children in the order of joining: those that need no exchange, and those with a condition, first."""

        def rank(reference: Reference) -> tuple[object, ...]:
            filtered = any(self.rows.source(name).condition is not None for name in self.graph.below[reference.child])
            return (
                reference.child not in self.replicated,
                # The last partition is the answer's, if groups can stay there.
                source == self.graph.root and self.grouped.issuperset(reference.key),
                not filtered,
                self.sizes[reference.child],
            )

        return tuple(sorted(self.graph.children(source), key=rank))

    def _partitions(self, source: str, chain: tuple[Reference, ...]) -> list[Partition]:
        """Where each join of a chain is done; children that are everywhere are joined where the next other one is."""
        if source in self.replicated:
            return [None] * len(chain)
        moving = [reference.key for reference in chain if reference.child not in self.replicated]
        first = moving[0] if moving else self._resting_place(source)
        return [first if reference.child in self.replicated else reference.key for reference in chain]

    def _resting_place(self, source: str) -> Partition:
        """The partition of a source that all its children come to: where its parents look for it."""
        if source != self.graph.root:
            return self.graph.parents(source)[0].key
        children = sorted(self.graph.children(source), key=lambda r: self.sizes[r.child], reverse=True)
        for reference in children:
            if self.grouped.issuperset(reference.key) and self._is_spread(reference.child):
                return reference.key  # groups stay where their rows are
        if self._is_spread(children[0].child):
            return children[0].key
        return self.graph.variables[source]

    def _is_spread(self, source: str) -> bool:
        """Whether the keys of a source are enough to fill all buckets evenly."""
        return self.sizes[source] >= _KEYS_A_BUCKET * self.buckets

    def _arrival(self, child: str, partition: Partition, produced: Mapping[str, tuple[int, Partition]]) -> int:
        """The level from which a join can have the live rows of its child."""
        if child not in produced:
            return 0
        level, where = produced[child]
        return level if where is None or where == partition else level + 1

    def _carried(self, source: str, joined: Sequence[str]) -> list[str]:
        """Variables that rows of a chain must have: those that are shown, and those that others are joined by."""
        done = frozenset([source]).union(*(self.graph.below[child] for child in joined))
        wanted = self._outside(done) | self._shown_through(source, joined)
        every = dict.fromkeys(v for name in self.graph.sources if name in done for v in self.graph.variables[name])
        return [v for v in every if v in wanted]

    def _brought(self, reference: Reference) -> list[str]:
        """Variables that a child's live rows bring to one of its parents."""
        child = reference.child
        carried = self._carried(child, [below.child for below in self.graph.children(child)])
        if self.owner[child] == reference.parent:
            return carried
        outside = self._outside(self.graph.below[child])
        return [v for v in carried if v in outside]

    def _outside(self, done: frozenset[str]) -> set[str]:
        return {v for name in self.graph.sources if name not in done for v in self.graph.variables[name]}

    def _shown_through(self, source: str, joined: Sequence[str]) -> set[str]:
        """Shown variables that have come to a source by way of the children joined so far."""
        out: set[str] = set()
        for name in self.graph.below[source]:
            by_way_of = self._way(name, source)
            if by_way_of == source or by_way_of in joined:
                out.update(v for v in self.graph.variables[name] if v in self.rows.shown)
        return out

    def _way(self, name: str, source: str) -> str | None:
        """The last stop of a source's shown variables before they come to another; None if they do not."""
        while name != source:
            owner = self.owner.get(name)
            if owner is None or owner == source:
                return name if owner else None
            name = owner
        return source

    def _why(self, source: str, reference: Reference, partition: Partition) -> str:
        if partition is None:
            return f"{source} is in every bucket, and so is {reference.child}"
        if reference.child in self.replicated:
            return f"{reference.child} is small beside {source}, so every bucket has it"
        return f"{source} and {reference.child} meet by the key of {reference.child}"


def _key_first(key: tuple[str, ...], variables: list[str]) -> tuple[str, ...]:
    return *key, *(name for name in variables if name not in key)
