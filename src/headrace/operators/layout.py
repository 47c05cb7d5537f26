"""How an aggregate view is kept: which rings its payload multiplies, and which ordered arrangements it needs.

COUNT, SUM and AVG are sums, so they live together in one payload a group: the product of a row count and, for each
argument, a count of the values present and a sum in the ring of its type. MIN, MAX and COUNT(DISTINCT) are not sums:
for each of their arguments an *ordered arrangement* maps (group, value) to a count. MIN and MAX are the first and the
last value whose count is positive; how many such values there are is kept in the payload, as they come and go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.plan.expression import Expression
from headrace.plan.view import ViewPlan
from headrace.relation.keys import KeyLayout
from headrace.rings import Compensated, Group, Integer, Product

GROUPS = "groups"
COUNT = Integer(1)


@dataclass(frozen=True)
class Component:
    """One part of the payload: what it sums, over which argument."""

    role: str  # rows | present | sum | distinct
    argument: int | None
    ring: Group


@dataclass(frozen=True)
class ViewLayout:
    """The arrangements of one aggregate view and the rings in them."""

    plan: ViewPlan
    seed: int

    @cached_property
    def keys(self) -> KeyLayout:
        """Layout of the group keys."""
        keys = self.plan.keys
        return KeyLayout(tuple(k.type for k in keys), tuple(k.nullable for k in keys), self.seed)

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The parts of the payload; the row count comes first and decides whether a group exists."""
        parts = [Component("rows", None, COUNT)]
        for index, argument in enumerate(self.plan.arguments):
            functions = {a.function for a in self.plan.aggregates if a.argument == index}
            if functions & {"count", "sum", "avg"} and argument.nullable:
                parts.append(Component("present", index, COUNT))
            if functions & {"sum", "avg"}:
                parts.append(Component("sum", index, sum_ring(argument)))
            if "count_distinct" in functions:
                parts.append(Component("distinct", index, COUNT))
        return tuple(parts)

    @cached_property
    def ring(self) -> Product:
        """The product of the rings of all components."""
        return Product(tuple(part.ring for part in self.components))

    @cached_property
    def extremes(self) -> tuple[int, ...]:
        """Arguments of MIN and MAX."""
        return self._arguments_of("min", "max")

    @cached_property
    def arranged(self) -> tuple[int, ...]:
        """Arguments of MIN, MAX and COUNT(DISTINCT): each has an ordered arrangement, one for all three."""
        return self._arguments_of("min", "max", "count_distinct")

    @cached_property
    def arrangements(self) -> dict[str, Group]:
        """All arrangements of the view and the group of their payloads."""
        return {GROUPS: self.ring} | {ordered(index): COUNT for index in self.arranged}

    def _arguments_of(self, *functions: str) -> tuple[int, ...]:
        used = {a.argument for a in self.plan.aggregates if a.function in functions}
        return tuple(sorted(index for index in used if index is not None))

    def component(self, role: str, argument: int | None) -> int | None:
        """Find a component; None if there is none (an argument that is never NULL needs no count of its own)."""
        for i, part in enumerate(self.components):
            if part.role == role and part.argument == argument:
                return i
        return None


def ordered(argument: int) -> str:
    """Name the ordered arrangement of an argument."""
    return f"ordered{argument}"


def sum_ring(argument: Expression) -> Group:
    """Choose the ring in which values of a type are summed without losing a digit (or an ulp)."""
    kind = argument.type
    if kind.is_floating:
        return Compensated()
    if kind.is_decimal:
        return Integer(2 if kind.precision <= 28 else 3)
    # A sum of BIGINTs may leave 64 bits on the way, or for good, which must be noticed.
    return Integer(2 if kind.kind == "bigint" else 1)
