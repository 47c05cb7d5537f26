"""From a foreign-key graph to a tree of inner joins, which follows the keys from the leaves of the graph to its root.

The rows of a source are joined with its children one after the other: a row that is *alive on* the first child is kept
for the second, and one that is alive on all of them is a live row of the source, which its parents look for in turn.
So the counter s(t) of the paper (Wang and Yi, SIGMOD 2020) is how far a row has come, and the join that holds the row
on its left side says how far that is. Every join finds its right side by a whole key, so it gives no more rows than
its left side has, and an update costs the same however large the tables are. Where several paths bring a variable to
one source, they must agree: these assertion keys are residual conditions of the join at which they meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.plan.assumptions import UNKNOWN_ROWS
from headrace.plan.expression import Expression, column
from headrace.plan.foreign_graph import ForeignGraph, NotForeign, Reference, foreign_graph
from headrace.plan.join import Source
from headrace.plan.rows import JoinedRows
from headrace.plan.tree import Aggregation, Feed, Field, Join, JoinKind, Node, Port, Tree
from headrace.plan.view import ViewPlan
from headrace.relation.schema import TableSchema
from headrace.relation.types import SqlType

_GUESSED_GROWTH = 4  # how many times larger a table is than those it refers to
_BOOLEAN = SqlType("boolean")

Names = tuple[str, ...]


@dataclass(frozen=True)
class ForeignTree:
    """A tree of joins along foreign keys.

    Parameters
    ----------
    joins : what each join of the tree joins, in the order of its nodes: rows of a source (alive on earlier children)
        and live rows of one more child.
    reads : for each feed from a table, by its source name in the tree: the source of the query that it reads, and which
        of the source's variables it gives, in order.
    shown : per variable of a joined row, its field in the last join.
    """

    tree: Tree
    graph: ForeignGraph
    joins: tuple[Reference, ...]
    reads: Mapping[str, tuple[str, tuple[int, ...]]]
    shown: Mapping[str, str]


def graph_of(rows: JoinedRows, tables: Mapping[str, TableSchema]) -> ForeignGraph | NotForeign:
    """The foreign-key graph of a join over these tables, or why it has none."""
    keys = {name: tables[name].key for name in rows.tables}
    references = {name: [table for _, table in tables[name].references] for name in rows.tables}
    return foreign_graph(rows.sources, keys, references)


def foreign_tree(plan: ViewPlan, graph: ForeignGraph, sizes: Mapping[str, int], buckets: int) -> ForeignTree:
    """Make a tree for a plan that has joined rows.

    Parameters
    ----------
    sizes : the rows of each source, as far as they are known: they decide in which order a source is joined with its
        children.
    """
    rows = plan.over
    assert isinstance(rows, JoinedRows)
    builder = _Builder(rows, graph, sizes, buckets)
    for source in graph.sources:
        builder.join_children(source)
    tree = Tree((*builder.nodes, builder.answer(plan)))
    shown = {name: field.name for name, field in builder.live(graph.root).fields.items()}
    return ForeignTree(tree, graph, tuple(builder.joins), builder.reads, shown)


@dataclass(frozen=True)
class _Given:
    """Where the live rows of a source are read from: the node that gives them, and its field per variable."""

    producer: int
    fields: Mapping[str, Field]

    def feed(self, names: Iterable[str]) -> Feed:
        found = [self.fields[name] for name in names]
        return Feed(self.producer, None, tuple(column(f.name, f.type, f.nullable) for f in found))


class _Builder:
    """Makes the joins of one tree, children before the parents that wait for them."""

    def __init__(self, rows: JoinedRows, graph: ForeignGraph, sizes: Mapping[str, int], buckets: int) -> None:
        self.rows = rows
        self.graph = graph
        self.known = frozenset(source for source, count in sizes.items() if count)
        self.sizes = _estimated(graph, sizes)
        self.buckets = buckets
        self.nodes: list[Node] = []
        self.joins: list[Reference] = []
        self.reads: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._live: dict[str, _Given] = {}  # of sources that have children
        self._owner = self._owners()
        self._grouped = frozenset(str(key.value) for key in rows.keys if key.op == "column")

    def join_children(self, source: str) -> None:
        """Join a source with its children, one after the other."""
        given: _Given | None = None
        children = self._ordered(source)
        for position, reference in enumerate(children):
            joined = [r.child for r in children[:position]]
            left = _key_first(reference.key, self._carried(source, joined))
            right = _key_first(reference.key, self._brought(reference))
            feeds = (
                self._table_feed(source, left) if given is None else given.feed(left),
                self._child_feed(reference.child, right),
            )
            is_last = position == len(children) - 1
            wanted = self._wanted(source) if is_last else self._carried(source, [*joined, reference.child])
            given = self._add(reference, (left, right), feeds, wanted)
        if given is not None:
            self._live[source] = given

    def live(self, source: str) -> _Given:
        """Where the live rows of a source that has children are read from."""
        return self._live[source]

    def answer(self, plan: ViewPlan) -> Aggregation:
        """The view's groups, made of the rows that come out of the root's last join."""
        given = self._live[self.graph.root]
        rename = {name: column(f.name, f.type, f.nullable) for name, f in given.fields.items()}
        outputs = tuple(expression.over(rename) for expression in (*self.rows.keys, *self.rows.arguments))
        condition = None if self.rows.condition is None else self.rows.condition.over(rename)
        letters = ["k"] * len(plan.keys) + ["v"] * len(plan.arguments)
        numbers = [*range(len(plan.keys)), *range(len(plan.arguments))]
        fields = tuple(
            Field(f"{letter}{i}", output.type, output.nullable)
            for letter, i, output in zip(letters, numbers, outputs, strict=True)
        )
        return Aggregation(Port(fields, (Feed(given.producer, condition, outputs),)), plan)

    # -- one join ---------------------------------------------------------------------------------------------------

    def _add(
        self, reference: Reference, names: tuple[Names, Names], feeds: tuple[Feed, Feed], wanted: Iterable[str]
    ) -> _Given:
        left, right = (
            tuple(Field(f"{letter}{i}", e.type, e.nullable) for i, e in enumerate(feed.outputs))
            for letter, feed in zip("lr", feeds, strict=True)
        )
        of_left, of_right = (dict(zip(n, f, strict=True)) for n, f in zip(names, (left, right), strict=True))
        asserted = [name for name in names[1] if name in of_left and name not in reference.key]
        # A key is found on both sides; the left one is given.
        fields = {name: of_left.get(name) or of_right[name] for name in wanted}
        self.nodes.append(
            Join(
                JoinKind.INNER,
                Port(left, feeds[:1]),
                Port(right, feeds[1:]),
                keys=len(reference.key),
                safe=(False,) * len(reference.key),
                residual=_all_equal([(of_left[name], of_right[name]) for name in asserted]),
                outputs=tuple(field.name for field in fields.values()),
                text=f"{reference.parent} refers to {reference.child} by {', '.join(reference.key)}",
            )
        )
        self.joins.append(reference)
        return _Given(len(self.nodes) - 1, fields)

    def _child_feed(self, child: str, names: Names) -> Feed:
        return self._live[child].feed(names) if child in self._live else self._table_feed(child, names)

    def _table_feed(self, name: str, variables: Names) -> Feed:
        source = self.rows.source(name)
        places = tuple(source.variable_names.index(variable) for variable in variables)
        # A source without children is read by each of its parents: every feed of it has a name of its own.
        again = sum(read == name for read, _ in self.reads.values())
        own = f"{name}+{again}" if again else name
        self.reads[own] = (name, places)
        outputs = tuple(self._typed(source, place) for place in places)
        required = tuple(i for i, variable in enumerate(variables) if variable in source.required)
        return Feed(None, source.condition, outputs, source.table, own, required=required)

    def _typed(self, source: Source, place: int) -> Expression:
        variable, expression = source.variables[place]
        return replace(expression, nullable=expression.nullable and variable not in source.required)

    # -- which variables travel -----------------------------------------------------------------------------------

    def _carried(self, source: str, joined: Sequence[str]) -> list[str]:
        """Variables that rows of a source need once these children are joined: to be shown, or to join others by."""
        done = frozenset([source]).union(*(self.graph.below[child] for child in joined))
        wanted = self._outside(done) | self._shown_through(source, joined)
        every = dict.fromkeys(v for name in self.graph.sources if name in done for v in self.graph.variables[name])
        return [v for v in every if v in wanted]

    def _wanted(self, source: str) -> list[str]:
        """Variables that the live rows of a source give: those that any of its parents, or the answer, reads."""
        if source == self.graph.root:
            return list(self.rows.shown)
        brought = [_key_first(r.key, self._brought(r)) for r in self.graph.parents(source)]
        return list(dict.fromkeys(name for names in brought for name in names))

    def _brought(self, reference: Reference) -> list[str]:
        """Variables that a child's live rows bring to one of its parents."""
        child = reference.child
        carried = self._carried(child, [below.child for below in self.graph.children(child)])
        if self._owner[child] == reference.parent:
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
        """The last source through which `name`'s shown variables come to `source`; None if they do not come to it."""
        while name != source:
            owner = self._owner.get(name)
            if owner is None or owner == source:
                return name if owner else None
            name = owner
        return source

    def _owners(self) -> dict[str, str]:
        """The parent through which a source's shown variables travel: the smallest, if there are several."""
        return {
            source: min((r.parent for r in self.graph.parents(source)), key=lambda name: self.sizes[name])
            for source in self.graph.sources[:-1]
        }

    # -- the order of joining ---------------------------------------------------------------------------------------

    def _ordered(self, source: str) -> tuple[Reference, ...]:
        """Children in the order of joining: those that need no exchange, and those with a condition, first."""

        def rank(reference: Reference) -> tuple[object, ...]:
            filtered = any(self.rows.source(name).condition is not None for name in self.graph.below[reference.child])
            return (
                reference.child not in self._small,
                # The last join's partition is the answer's, if groups can stay there.
                source == self.graph.root and self._grouped.issuperset(reference.key),
                not filtered,
                self.sizes[reference.child],
            )

        return tuple(sorted(self.graph.children(source), key=rank))

    @cached_property
    def _small(self) -> frozenset[str]:
        """Sources so small beside their parents that every bucket will have them (`operators.placement`)."""
        out: set[str] = set()
        for source in reversed(self.graph.sources[:-1]):
            parents = [reference.parent for reference in self.graph.parents(source)]
            brought = self.graph.below[source]
            if self.known.issuperset(brought) and self.known.issuperset(parents):
                weight = self.buckets * max(self.sizes[name] for name in brought)
                if weight <= min(self.sizes[parent] for parent in parents):
                    out.add(source)
        return frozenset(out)


def _estimated(graph: ForeignGraph, sizes: Mapping[str, int]) -> dict[str, float]:
    """Sizes with guesses for those that are not known: a table is some times larger than those it refers to."""
    out: dict[str, float] = {}
    for source in graph.sources:
        largest = max((out[r.child] for r in graph.children(source)), default=UNKNOWN_ROWS / _GUESSED_GROWTH)
        out[source] = sizes.get(source) or _GUESSED_GROWTH * largest
    return out


def _key_first(key: Names, variables: Sequence[str]) -> Names:
    return *key, *(name for name in variables if name not in key)


def _all_equal(pairs: Sequence[tuple[Field, Field]]) -> Expression | None:
    """The condition that all pairs of fields are equal; None if there are none."""
    out: Expression | None = None
    for pair in pairs:
        left, right = (column(field.name, field.type, field.nullable) for field in pair)
        term = Expression("EqualTo", _BOOLEAN, f"({left} = {right})", (left, right))
        out = term if out is None else Expression("And", _BOOLEAN, f"({out} AND {term})", (out, term))
    return out
