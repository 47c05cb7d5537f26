"""How an aggregate view is kept: the rings whose product is its payload, and the ordered arrangements it needs.

COUNT, SUM, AVG and the variances are made of sums, so they live together in one payload per group: the product of a row
count and, per argument, a count of the values present, a sum in the ring of its type and a sum of squares. MIN, MAX and
aggregates of DISTINCT values are not sums over rows: for each of their arguments an *ordered arrangement* maps (group,
value) to a count. MIN and MAX are the first and the last value whose count is positive; the number of such values and
their sum are kept in the payload. A sum in a ring of the user is a part of the payload, with a count of the rows that
have all of its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.plan.expression import Expression
from headrace.plan.view import IN_RING, ViewPlan
from headrace.relation.keys import KeyLayout
from headrace.relation.types import SqlType
from headrace.rings import COUNT, Compensated, Group, Integer, Product

GROUPS = "groups"
SPREADS = frozenset({"var_pop", "var_samp", "stddev_pop", "stddev_samp"})
DISTINCT = frozenset({"count_distinct", "sum_distinct", "avg_distinct"})

_WIDE = Compensated(3)  # the ring of the two large numbers that a variance subtracts


@dataclass(frozen=True)
class Component:
    """One part of the payload: what it sums, over which argument."""

    role: str  # rows | present | sum | squares | distinct | distinct_sum | complete | product
    argument: int | None
    ring: Group
    others: tuple[int, ...] = ()  # the other arguments of COUNT(DISTINCT a, b, ...), or of a product


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
            functions = self.functions(index)
            summed = {"sum", "avg"} | SPREADS
            if functions & ({"count"} | summed) and argument.nullable:
                parts.append(Component("present", index, COUNT))
            if functions & summed:
                parts.append(Component("sum", index, _WIDE if functions & SPREADS else sum_ring(argument)))
            if functions & SPREADS:
                parts.append(Component("squares", index, _WIDE))
            if functions & DISTINCT:
                parts.append(Component("distinct", index, COUNT))
            if functions & {"sum_distinct", "avg_distinct"}:
                parts.append(Component("distinct_sum", index, sum_ring(argument)))
        for first, *others in self.combined:
            parts.append(Component("distinct", first, COUNT, tuple(others)))
        for aggregate in self.plan.aggregates:
            if aggregate.function == IN_RING:
                assert aggregate.argument is not None
                assert aggregate.ring is not None
                over = (aggregate.argument, *aggregate.others)
                if any(self.plan.arguments[i].nullable for i in over):
                    parts.append(Component("complete", aggregate.argument, COUNT, aggregate.others))
                parts.append(Component("product", aggregate.argument, aggregate.ring, aggregate.others))
        return tuple(dict.fromkeys(parts))

    def functions(self, argument: int) -> frozenset[str]:
        """The functions that the view computes of this argument alone."""
        return frozenset(a.function for a in self.plan.aggregates if a.argument == argument and not a.others)

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
        """Arguments of MIN, MAX and DISTINCT: each argument has one ordered arrangement, shared by these functions."""
        return self._arguments_of("min", "max", *DISTINCT)

    @cached_property
    def combined(self) -> tuple[tuple[int, ...], ...]:
        """The arguments of each COUNT(DISTINCT a, b, ...), whose combinations have an arrangement."""
        several = (a for a in self.plan.aggregates if a.others and a.function != IN_RING)
        return tuple(sorted({(a.argument, *a.others) for a in several if a.argument is not None}))

    @cached_property
    def values(self) -> dict[str, tuple[int, ...]]:
        """The arrangements of values, and the arguments whose values (or combinations of values) each holds."""
        return {ordered(*arguments): arguments for arguments in (*((i,) for i in self.arranged), *self.combined)}

    @cached_property
    def arrangements(self) -> dict[str, Group]:
        """All arrangements of the view and the group of their payloads."""
        return {GROUPS: self.ring} | dict.fromkeys(self.values, COUNT)

    def combination(self, arguments: tuple[int, ...]) -> KeyLayout:
        """Layout of combinations of values, none of which is NULL; their words are distinct, in no particular order."""
        types = tuple(self.plan.arguments[i].type for i in arguments)
        return KeyLayout(types, (False,) * len(types), self.seed)

    def _arguments_of(self, *functions: str) -> tuple[int, ...]:
        wanted = set(functions)
        return tuple(i for i in range(len(self.plan.arguments)) if self.functions(i) & wanted)

    def component(
        self, role: str, argument: int | None, others: tuple[int, ...] = (), ring: Group | None = None
    ) -> int | None:
        """Find a component; None if there is none (an argument that is never NULL needs no count of its own)."""
        for i, part in enumerate(self.components):
            if (part.role, part.argument, part.others) == (role, argument, others) and ring in (None, part.ring):
                return i
        return None


def ordered(*arguments: int) -> str:
    """Name the arrangement of an argument's values, which are ordered, or of the combinations of several arguments."""
    return f"ordered{arguments[0]}" if len(arguments) == 1 else f"combined{'_'.join(map(str, arguments))}"


def sum_ring(argument: Expression) -> Group:
    """Choose the ring in which an argument is summed without losing a digit (or an ulp)."""
    return sum_ring_of(argument.type)


def sum_ring_of(kind: SqlType) -> Group:
    """Choose the ring in which values of a type are summed without losing a digit (or an ulp)."""
    if kind.is_floating:
        return Compensated()
    if kind.is_decimal:
        return Integer(2 if kind.precision <= 28 else 3)
    # A sum of BIGINTs may leave 64 bits, for a while or for good, and an overflow must be noticed.
    return Integer(2 if kind.kind == "bigint" else 1)
