"""Streams: rows on their way between operators, in Catalyst's expressions.

A stream gives every column of a plan as an expression over the operator, or table, that the rows come from. Projections
replace these expressions, and filters add conditions; neither needs an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.sql.flatten import Flat
from headrace.sql.jvm import Catalyst, Jvm, identity, items, kind


@dataclass(frozen=True)
class Producer:
    """Where rows come from: a table, or an operator, with one attribute per column."""

    number: int | None
    leaf: Jvm  # the leaf of the table; that of any table, where the rows come from an operator
    attributes: tuple[Jvm, ...]
    table: str = ""

    @cached_property
    def names(self) -> dict[int, str]:
        return {identity(attribute): str(attribute.name()) for attribute in self.attributes}


@dataclass(frozen=True)
class Stream:
    """Rows of a producer on their way: an expression per column of the plan, and the conditions on the rows."""

    producer: Producer
    meaning: dict[int, Jvm]
    filters: tuple[Jvm, ...] = ()
    times: Jvm | None = None


@dataclass(frozen=True)
class Grouped:
    """An aggregate that was read, to be found again where the query groups the same rows a second time."""

    producer: Producer
    child: Jvm
    flat: Flat

    def slots_for(self, child: Jvm, flat: Flat, catalyst: Catalyst) -> dict[int, Jvm] | None:
        """This aggregate's slots for the keys and aggregates of another, by its slots; None unless all are here."""
        if flat.shape is not self.flat.shape or not child.sameResult(self.child):
            return None
        pairs = zip(items(child.output()), items(self.child.output()), strict=True)
        here = {identity(other): own for other, own in pairs}
        if len(flat.keys) != len(self.flat.keys) or not all(
            catalyst.substitute(key, here).semanticEquals(own)
            for key, own in zip(flat.keys, self.flat.keys, strict=True)
        ):
            return None
        moved = [catalyst.substitute(argument, here) for argument in flat.arguments]
        at = [next((i for i, own in enumerate(self.flat.arguments) if own.semanticEquals(m)), -1) for m in moved]
        known = {(a.function, a.argument, a.others, a.options): i for i, a in enumerate(self.flat.aggregates)}
        places = []
        for a in flat.aggregates:
            first, others = None if a.argument is None else at[a.argument], tuple(at[i] for i in a.others)
            places.append(known.get((a.function, first, others, a.options), -1))
        if -1 in places:
            return None
        own, width = self.flat.slots, len(self.flat.keys)
        slots = [*own[:width], *(own[width + place] for place in places)]
        return {identity(slot): there for slot, there in zip(flat.slots, slots, strict=True)}


def subqueries(expression: Jvm) -> list[Jvm]:
    """The scalar subqueries of an expression."""
    if kind(expression) == "ScalarSubquery":
        return [expression]
    return [found for child in items(expression.children()) for found in subqueries(child)]


def unnamed(node: Jvm) -> Jvm:
    """An expression without its alias."""
    return node.child() if kind(node) == "Alias" else node


def numbered(letter: str, nodes: Sequence[Jvm]) -> list[tuple[str, Jvm]]:
    """Expressions with the names of fields: the letter and the position, as in k0, k1, ..."""
    return [(f"{letter}{i}", node) for i, node in enumerate(nodes)]
