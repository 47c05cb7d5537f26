"""Joins of an optimized plan as operators: which terms of a condition are keys, and which are evaluated on pairs.

Rows with equal keys are found by searching, so every equality between the two sides becomes a key. Where it compares
more than columns, its two sides are computed before the join. The other terms are evaluated on pairs with equal keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.tree import FLAG, Join, JoinKind
from headrace.sql.jvm import Jvm, conjuncts, identity, items, kind, option
from headrace.sql.scalars import to_expression
from headrace.sql.tree_streams import Stream

if TYPE_CHECKING:
    from headrace.sql.tree_reader import TreeReader

_KINDS = {
    "Inner$": JoinKind.INNER,
    "Cross$": JoinKind.INNER,
    "LeftOuter$": JoinKind.LEFT,
    "RightOuter$": JoinKind.LEFT,
    "FullOuter$": JoinKind.FULL,
    "LeftSemi$": JoinKind.SEMI,
    "LeftAnti$": JoinKind.ANTI,
    "ExistenceJoin": JoinKind.FLAG,
    "LeftSingle$": JoinKind.SINGLE,
}


@dataclass
class _Side:
    """One side of a join: its columns, and the expressions that become fields of its port."""

    letter: str
    streams: list[Stream]
    attributes: dict[int, Jvm]
    nodes: list[Jvm] = field(default_factory=list)

    def covers(self, node: Jvm) -> bool:
        """Whether an expression reads this side, and nothing else."""
        read = items(node.references().toSeq())
        return bool(read) and all(identity(attribute) in self.attributes for attribute in read)

    def add(self, node: Jvm) -> str:
        """The name of the field of an expression; it becomes a new field if there is none like it."""
        for i, known in enumerate(self.nodes):
            if node.semanticEquals(known):
                return f"{self.letter}{i}"
        self.nodes.append(node)
        return f"{self.letter}{len(self.nodes) - 1}"

    def columns(self) -> list[tuple[str, Jvm]]:
        return [(f"{self.letter}{i}", node) for i, node in enumerate(self.nodes)]


class JoinReader:
    """Reads joins, and also scalar subqueries, which are joined to the rows that use their value."""

    def __init__(self, reader: TreeReader) -> None:
        self.reader = reader

    def join(self, node: Jvm, needed: set[int]) -> list[Stream]:
        """Read a join of the plan."""
        name = kind(node.joinType())
        if name not in _KINDS:
            self.reader.refuse(
                f"{node.joinType().sql()} JOIN", "Headrace has no rule for it", "write it with other joins"
            )
        swapped = name == "RightOuter$"
        first, second = (node.right(), node.left()) if swapped else (node.left(), node.right())
        terms = [self.reader.without_subqueries(term) for term in conjuncts(option(node.condition()))]
        values = self.reader.values_in(terms)
        read = needed | self.reader.referenced(terms)
        left, right = (self._side(letter, child, read) for letter, child in (("l", first), ("r", second)))
        for value in values:  # a subquery in the condition is a column of the left side
            columns = [a for number, a in left.attributes.items() if number in read]
            left.streams = [self.beside(left.streams, columns, value, [], read)]
            left.attributes[identity(value)] = value
        kind_of = _KINDS[name]
        equality = _null_aware(terms[0]) if kind_of is JoinKind.ANTI and len(terms) == 1 else None
        if equality is not None and self._key(equality, left, right) is not None:
            kind_of, terms = JoinKind.NULL_AWARE, [equality]
        exists = node.joinType().exists() if kind_of is JoinKind.FLAG else None
        return [self._built(kind_of, left, right, terms, needed, exists)]

    def beside(
        self, streams: list[Stream], columns: Sequence[Jvm], value: Jvm, terms: list[Jvm], needed: set[int]
    ) -> Stream:
        """Rows extended by the value of a scalar subquery; only those for which all `terms` are true."""
        row = self.reader.single(value)
        there = streams[0].meaning
        left = _Side("l", streams, {identity(a): a for a in columns if identity(a) in there})
        right = _Side("r", [row], {identity(value): value})
        return self._built(JoinKind.INNER, left, right, terms, needed, None)

    def pairs(
        self,
        streams: list[Stream],
        columns: Sequence[Jvm],
        others: list[Stream],
        theirs: Sequence[Jvm],
        terms: Sequence[Jvm],
        needed: set[int],
    ) -> Stream:
        """The inner join of two sides that have been read, each with its columns."""
        left = _Side("l", streams, {identity(a): a for a in columns})
        right = _Side("r", others, {identity(a): a for a in theirs})
        return self._built(JoinKind.INNER, left, right, terms, needed, None)

    def _side(self, letter: str, child: Jvm, read: set[int]) -> _Side:
        attributes = {identity(a): a for a in items(child.output())}
        streams = self.reader.streams(child, read & attributes.keys())
        return _Side(letter, streams, attributes)

    def _key(self, term: Jvm, left: _Side, right: _Side) -> tuple[Jvm, Jvm] | None:
        """The left and right expression of an equality between the sides of the join; None for any other term."""
        if kind(term) not in ("EqualTo", "EqualNullSafe"):
            return None
        a, b = term.left(), term.right()
        if left.covers(a) and right.covers(b):
            return a, b
        return (b, a) if left.covers(b) and right.covers(a) else None

    def _built(
        self, kind_of: JoinKind, left: _Side, right: _Side, terms: Sequence[Jvm], needed: set[int], exists: Jvm | None
    ) -> Stream:
        reader = self.reader
        safe, rest = [], []
        for term in terms:
            pair = self._key(term, left, right)
            if pair is None:
                rest.append(term)
            elif not any(
                pair[0].semanticEquals(a) and pair[1].semanticEquals(b)
                for a, b in zip(left.nodes, right.nodes, strict=True)
            ):
                left.nodes.append(pair[0])
                right.nodes.append(pair[1])
                safe.append(kind(term) == "EqualNullSafe" or kind_of is JoinKind.NULL_AWARE)
        keys = len(safe)
        residual, later = self._residual(kind_of, rest, left, right)
        given = (left, right) if kind_of.pairs else (left,)
        wanted = needed | reader.referenced(later)
        outputs = [
            (attribute, side.add(attribute))
            for side in given
            for number, attribute in side.attributes.items()
            if number in wanted
        ]
        if exists is not None:
            outputs.append((exists, FLAG))
        text = " AND ".join(reader.refusals.text(term) for term in terms)
        # The feeds of both ports carry the number of the join, which is added after them.
        ports = [reader.port(side.streams, side.columns(), number) for number, side in enumerate((left, right))]
        names = tuple(dict.fromkeys(name for _, name in outputs))
        number = reader.add(Join(kind_of, ports[0], ports[1], keys, tuple(safe), residual, names, text))
        nullable = {field.name: field.nullable for field in reader.nodes[number].fields}
        stream = reader.given(number, [(a.withNullability(nullable[name]), name) for a, name in outputs])
        for term in later:
            stream = reader.filtered(stream, term)
        return stream

    def _residual(
        self, kind_of: JoinKind, rest: Sequence[Jvm], left: _Side, right: _Side
    ) -> tuple[Expression | None, list[Jvm]]:
        """The condition that the join evaluates on pairs, and terms that only Spark can evaluate, after the join."""
        now: list[Jvm] = []
        later: list[Jvm] = []
        names: dict[int, str] = {}
        for term in rest:
            self._compute_apart(term, left, right)
            standing, fields = self._standing(term, left, right)
            reason = native.why_not(to_expression(standing, fields))
            if reason is None:
                now.append(standing)
                names |= fields
            elif kind_of is JoinKind.INNER:
                later.append(term)
            else:
                self.reader.refuse(
                    f"{self.reader.refusals.text(term)} in the condition of a {kind_of.value}",
                    f"only Spark can evaluate {reason}, over columns of both sides",
                    "compute what reads one side in a subquery",
                )
        together = self.reader.catalyst.conjunction(now)
        return None if together is None else to_expression(together, names), later

    def _standing(self, node: Jvm, left: _Side, right: _Side) -> tuple[Jvm, dict[int, str]]:
        """An expression with attributes for the parts computed on one side, and the field of each attribute."""
        catalyst = self.reader.catalyst
        for side in (left, right):
            if kind(node) == "AttributeReference" and identity(node) in side.attributes:
                return node, {identity(node): side.add(node)}
            if side.covers(node) and any(node.semanticEquals(known) for known in side.nodes):
                name = side.add(node)
                own = catalyst.attribute(name, node.dataType(), node.nullable())
                return own, {identity(own): name}
        children = items(node.children())
        parts = [self._standing(child, left, right) for child in children]
        names = {i: name for _, more in parts for i, name in more.items()}
        return catalyst.with_children(node, children, [part for part, _ in parts]), names

    def _compute_apart(self, node: Jvm, left: _Side, right: _Side) -> None:
        """Compute the parts that read one side, and that only Spark can evaluate, on that side before the join."""
        for side in (left, right):
            if side.covers(node):
                names = {i: a.name() for i, a in side.attributes.items()}
                if native.why_not(to_expression(node, names)) is not None:
                    side.add(node)
                return
        for child in items(node.children()):
            self._compute_apart(child, left, right)


def _null_aware(term: Jvm) -> Jvm | None:
    """The equality in `a = b OR (a = b) IS NULL`, the optimized form of NOT IN; None for any other term."""
    if kind(term) != "Or":
        return None
    for equality, unknown in ((term.left(), term.right()), (term.right(), term.left())):
        if kind(equality) == "EqualTo" and kind(unknown) == "IsNull" and unknown.child().semanticEquals(equality):
            return equality
    return None
