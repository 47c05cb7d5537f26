"""How an aggregate view is kept: the rings whose product is its payload, and the ordered arrangements it needs.

Aggregates that are made of sums live together in one payload per group: the product of a row count and, per argument, a
count of the values present and sums of the values and their powers, each in a ring of its own. A sum in a ring of the
user is a part of the payload, with a count of the rows that have all of its arguments.

MIN, MAX and aggregates of DISTINCT values are not sums over rows: for each of their arguments an *ordered arrangement*
maps (group, value) to a count. MIN and MAX are the first and the last value whose count is positive; the number of such
values and their sums are kept in the payload. MAX_BY, MODE, BIT_AND and their like have arrangements with other keys
behind the group. A percentile has a *place* in the payload, which moves along the ordered arrangement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from headrace.operators.asked import (
    BITS,
    DISTINCT,
    LOOKED_UP,
    PERCENTILES,
    POWERS,
    SQUARED,
    is_distinct,
    orders_by,
    plain,
    sums_of,
)
from headrace.plan.expression import Expression
from headrace.plan.view import IN_RING, Aggregate, ViewPlan
from headrace.relation.keys import KeyLayout
from headrace.relation.types import SqlType
from headrace.rings import COUNT, PARITY, Compensated, Group, Integer, Product

GROUPS = "groups"

_WIDE = Compensated(3)  # the ring of the large numbers that a variance subtracts
_ROLES = (
    "present", "sum", "squares", "cubes", "fourths", "parity",
    "distinct", "distinct_sum", "distinct_squares", "distinct_cubes", "distinct_fourths", "distinct_parity",
)  # fmt: skip


@dataclass(frozen=True)
class Component:
    """One part of the payload: what it sums, over which argument."""

    # rows | present | sum | squares | cubes | fourths | parity, and all but the first with "distinct" | cross | place
    # complete | product
    role: str
    argument: int | None
    ring: Group
    others: tuple[int, ...] = ()  # the other arguments of COUNT(DISTINCT a, b, ...), or of a product
    options: tuple[str | float | bool, ...] = ()  # the function of a place, and what it was told


class Behind(Enum):
    """What is behind the group in the keys of an arrangement, whose payload is a count."""

    VALUE = "value"  # of one argument, in its order
    COMBINATION = "combination"  # of the values of several arguments, none of which is NULL, in no particular order
    PAIR = "pair"  # a value to order by and one to take; each may be NULL
    BIT = "bit"  # the number of a bit that is set in a value


@dataclass(frozen=True)
class Arranged:
    """An arrangement of what rows have in some arguments."""

    behind: Behind
    arguments: tuple[int, ...]


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
            wanted = {role for function in self.functions(index) for role in sums_of(function)}
            wanted |= {role for one in self._pairs for role in _sums_of_pair(one, index)}
            wanted -= set() if argument.nullable else {"present"}
            parts += [Component(role, index, self._ring_of(role, index)) for role in _ROLES if role in wanted]
        for first, *others in self.combined:
            parts.append(Component("distinct", first, COUNT, tuple(others)))
        for aggregate in self.plan.aggregates:
            over = aggregate.argument, aggregate.others
            if aggregate.function == IN_RING:
                assert aggregate.argument is not None
                assert aggregate.ring is not None
                if any(self.plan.arguments[i].nullable for i in (aggregate.argument, *aggregate.others)):
                    parts.append(Component("complete", aggregate.argument, COUNT, aggregate.others))
                parts.append(Component("product", aggregate.argument, aggregate.ring, aggregate.others))
            elif aggregate.function in SQUARED:
                parts.append(Component("cross", over[0], _WIDE, over[1]))
            elif plain(aggregate.function) in PERCENTILES:
                parts.append(self.place(aggregate))
        return tuple(dict.fromkeys(parts))

    def functions(self, argument: int) -> frozenset[str]:
        """The functions that the view computes of this argument alone."""
        return frozenset(a.function for a in self.plan.aggregates if a.argument == argument and not a.others)

    @cached_property
    def _pairs(self) -> tuple[Aggregate, ...]:
        return tuple(one for one in self.plan.aggregates if one.function in SQUARED)

    def _ring_of(self, role: str, index: int) -> Group:
        if role in ("present", "distinct"):
            return COUNT
        if role.endswith("parity"):
            return PARITY
        distinct = role.startswith("distinct")
        wide = any(plain(name) in POWERS and is_distinct(name) == distinct for name in self.functions(index))
        wide |= not distinct and any(index in (one.argument, *one.others) for one in self._pairs)
        return _WIDE if wide else sum_ring(self.plan.arguments[index])

    @cached_property
    def ring(self) -> Product:
        """The product of the rings of all components."""
        return Product(tuple(part.ring for part in self.components))

    @cached_property
    def looked_up(self) -> dict[str, Aggregate]:
        """The aggregates whose values are looked up in arrangements, by the names of columns that hold them."""
        found = enumerate(self.plan.aggregates)
        return {self.column_of(i): one for i, one in found if one.function in LOOKED_UP}

    def column_of(self, number: int) -> str:
        """The name of the column of an aggregate that is looked up."""
        one = self.plan.aggregates[number]
        return f"{one.function}{one.argument}" if one.function in ("min", "max") else f"{one.function}.{number}"

    @cached_property
    def arranged(self) -> tuple[int, ...]:
        """Arguments whose values are in order: each has one ordered arrangement, shared by all functions of it."""
        alone = {"min", "max", "mode", "listagg", *PERCENTILES} | DISTINCT
        texts = {pair[0] for pair in self._ordering if self.plan.arguments[pair[0]].type.kind == "string"}
        return tuple(i for i in range(len(self.plan.arguments)) if i in texts or self.functions(i) & alone)

    @cached_property
    def _ordering(self) -> tuple[tuple[int, int], ...]:
        pairs = {pair for one in self.plan.aggregates if (pair := orders_by(one)) is not None}
        return tuple(sorted(pairs))

    @cached_property
    def combined(self) -> tuple[tuple[int, ...], ...]:
        """The arguments of each COUNT(DISTINCT a, b, ...), whose combinations have an arrangement."""
        several = (a for a in self.plan.aggregates if a.others and a.function == "count_distinct")
        return tuple(sorted({(a.argument, *a.others) for a in several if a.argument is not None}))

    @cached_property
    def values(self) -> dict[str, Arranged]:
        """The arrangements of what rows have in the arguments."""
        out = {ordered(i): Arranged(Behind.VALUE, (i,)) for i in self.arranged}
        out |= {ordered(*several): Arranged(Behind.COMBINATION, several) for several in self.combined}
        out |= {paired(*pair): Arranged(Behind.PAIR, pair) for pair in self._ordering}
        count = range(len(self.plan.arguments))
        return out | {bits(i): Arranged(Behind.BIT, (i,)) for i in count if self.functions(i) & BITS}

    @cached_property
    def frequencies(self) -> dict[str, int]:
        """The arrangements of values by how often they occur, the most frequent first; and the argument of each."""
        return {f"frequency{i}": i for i in range(len(self.plan.arguments)) if "mode" in self.functions(i)}

    @cached_property
    def arrangements(self) -> dict[str, Group]:
        """All arrangements of the view and the group of their payloads."""
        return {GROUPS: self.ring} | dict.fromkeys((*self.values, *self.frequencies), COUNT)

    @cached_property
    def derived(self) -> frozenset[int]:
        """The components that are known only where the state is, from what becomes of the values of a group."""
        roles = (part.role for part in self.components)
        return frozenset(i for i, role in enumerate(roles) if role.startswith("distinct") or role == "place")

    def combination(self, arguments: tuple[int, ...]) -> KeyLayout:
        """Layout of combinations of values, none of which is NULL; their words are distinct, in no particular order."""
        types = tuple(self.plan.arguments[i].type for i in arguments)
        return KeyLayout(types, (False,) * len(types), self.seed)

    @cached_property
    def text(self) -> KeyLayout:
        """Layout of a text by its hash alone."""
        return KeyLayout((SqlType("string"),), (False,), self.seed)

    def place(self, aggregate: Aggregate) -> Component:
        """The place of a percentile: how many values there are, how many before the place, and the two values there."""
        assert aggregate.argument is not None
        ring = Product((COUNT,) * (2 + 2 * value_words(self.plan.arguments[aggregate.argument].type)))
        return Component("place", aggregate.argument, ring, (), (aggregate.function, *aggregate.options))

    def component(
        self, role: str, argument: int | None, others: tuple[int, ...] = (), ring: Group | None = None
    ) -> int | None:
        """Find a component; None if there is none (an argument that is never NULL needs no count of its own)."""
        for i, part in enumerate(self.components):
            if (part.role, part.argument, part.others) == (role, argument, others) and ring in (None, part.ring):
                return i
        return None

    def required(self, role: str, argument: int | None, others: tuple[int, ...] = ()) -> int:
        """Find a component that is there."""
        at = self.component(role, argument, others)
        assert at is not None, f"{role} of {argument} is kept for whoever asks"
        return at


def _sums_of_pair(aggregate: Aggregate, index: int) -> tuple[str, ...]:
    both = (aggregate.argument, *aggregate.others)
    squared = any(both[side] == index for side in SQUARED[aggregate.function])
    return ("present", "sum", *(["squares"] if squared else [])) if index in both else ()


def ordered(*arguments: int) -> str:
    """Name the arrangement of an argument's values, which are ordered, or of the combinations of several arguments."""
    return f"ordered{arguments[0]}" if len(arguments) == 1 else f"combined{'_'.join(map(str, arguments))}"


def paired(order: int, value: int) -> str:
    """Name the arrangement of an argument's values in the order of another's."""
    return f"paired{order}_{value}"


def bits(argument: int) -> str:
    """Name the arrangement of the bits of an argument's values."""
    return f"bits{argument}"


def value_words(kind: SqlType) -> int:
    """How many words a value of fixed width has."""
    return 2 if kind.precision > 18 else 1


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
