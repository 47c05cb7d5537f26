"""What a maintained view computes, as an immutable value.

Every view is the same three parts, whatever its SQL looked like: a stateless *map side* (condition, keys, arguments)
over the rows of its table, or over a join of several; aggregates grouped by the keys; and a stateless
*finish* (having, outputs, order, limit) over the groups. The finish reads the columns `k0, k1, ...` (keys) and
`a0, a1, ...` (aggregates).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headrace.plan.expression import Expression
from headrace.plan.join import JoinPlan
from headrace.plan.rows import JoinedRows
from headrace.relation.types import SqlType
from headrace.rings.named import NamedRing

IN_RING = "ring"  # the function of an aggregate that sums products in a ring of the user


class Shape(Enum):
    """What one row of the view stands for."""

    GROUPS = "groups"  # GROUP BY or DISTINCT: one row per group that exists
    TOTAL = "total"  # aggregates without GROUP BY: always exactly one row
    ROWS = "rows"  # no aggregate: a bag; the keys are the output columns, repeated by their count


@dataclass(frozen=True)
class Aggregate:
    """One aggregate function; `argument` is an index into the view's arguments, None for COUNT(*)."""

    # count | sum | avg | min | max | var_pop | var_samp | stddev_pop | stddev_samp
    # count_distinct | sum_distinct | avg_distinct
    # the others are in `operators.layout`, with what each of them is made of
    # ring: the sum, in a ring of the user, of the products of all arguments
    function: str
    argument: int | None
    type: SqlType
    sql: str
    others: tuple[int, ...] = ()  # the other arguments of COUNT(DISTINCT a, b, ...), or of a product
    ring: NamedRing | None = None
    options: tuple[str | float | bool, ...] = ()  # what else the function was told, such as the rank of a percentile


@dataclass(frozen=True)
class Output:
    """One column of the view: its name and its expression over `k0..` and `a0..`."""

    name: str
    expression: Expression


@dataclass(frozen=True)
class Order:
    """One ORDER BY item over the output columns; it only arranges what a reader gets."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class TableRows:
    """The rows of one table that pass a condition."""

    table: str
    condition: Expression | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)


@dataclass(frozen=True)
class Fed:
    """Rows that the operators of a tree give; `tables` are those at the leaves of the tree, where they are known."""

    tables: tuple[str, ...] = ()


HIDDEN = "__order"  # begins the names of outputs that the answer is only sorted by


@dataclass(frozen=True)
class ViewPlan:
    """A maintained view.

    Over one table, the map side is evaluated on its rows. Over a join, keys and arguments only tell their types and
    their text. The join says what they are made of: sums of products, source by source (`JoinPlan`), or joined rows
    (`JoinedRows`).
    """

    over: TableRows | JoinPlan | JoinedRows | Fed
    shape: Shape
    keys: tuple[Expression, ...]
    arguments: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    having: Expression | None
    outputs: tuple[Output, ...]
    order: tuple[Order, ...] = ()
    limit: int | None = None  # how many rows a reader gets; the state keeps all of them
    root_required: str = ""  # text of an IN that became part of `having`: right if no row of its table meets several

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the view reads."""
        return self.over.tables

    @property
    def shown(self) -> tuple[Output, ...]:
        """The columns of the answer: outputs that it is only sorted by, which come last, are none."""
        return tuple(output for output in self.outputs if not output.name.startswith(HIDDEN))

    @property
    def rings(self) -> tuple[NamedRing, ...]:
        """The rings of the user that the view sums in."""
        return tuple(dict.fromkeys(a.ring for a in self.aggregates if a.ring is not None))
