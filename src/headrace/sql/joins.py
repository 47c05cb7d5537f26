"""The join under a view as sums of products, for strategies that never make a joined row.

Every condition must be an equality or read one source, every key must come from one source, and every argument must
be a sum of products whose factors each read one source. Only these distribute over a join; all else is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from headrace.operators.asked import DISTINCT, POWERS, SQUARED
from headrace.plan.join import JoinPlan
from headrace.plan.view import IN_RING, Shape
from headrace.sql.equalities import Equalities, Variable, bare
from headrace.sql.evaluate import MapSide
from headrace.sql.flatten import Flat
from headrace.sql.jvm import Catalyst, Jvm
from headrace.sql.products import Products
from headrace.sql.refusals import Refusals
from headrace.sql.sources import Sources

_SUMMED = frozenset({"count", "sum", "avg", IN_RING})
_UNSUMMED = {
    **dict.fromkeys(("min", "max"), "MIN and MAX are not kept up to date over joins by sums"),
    **dict.fromkeys(DISTINCT, "DISTINCT values are not kept up to date over joins by sums"),
    **dict.fromkeys(POWERS, "squares are not kept up to date over joins by sums of products"),
    **dict.fromkeys(SQUARED, "products of two arguments are not kept up to date over joins by sums of products"),
}
_LOOKED_UP = "the values of groups are not kept in order over joins by sums"


@dataclass(frozen=True)
class Join:
    """The join under a view: the Catalyst expressions of its sources, and the plan that says the same without Spark."""

    sources: Sources
    plan: JoinPlan
    sides: dict[str, MapSide]


@dataclass
class Joiner:
    """Reads the join of one flattened view.

    Parameters
    ----------
    output_names : names that the variables of the keys should have, where the keys are the view's columns.
    """

    catalyst: Catalyst
    refusals: Refusals
    flat: Flat
    output_names: list[str] | None = None
    equalities: Equalities = field(init=False)

    def join(self) -> Join:
        self._refuse_unsummed()
        self.equalities = Equalities(self.catalyst, self.refusals, self.flat)
        sources = self.equalities.sources
        for term in self.equalities.leftover:
            self._refuse_across(term)
        cross = self.equalities.is_product()
        keys = [self._key_variable(i, key) for i, key in enumerate(self.flat.keys)]
        self.equalities.name_variables(list(zip(keys, self.output_names or (), strict=False)))
        self._refuse_mixed(sources)
        products = Products(self.catalyst, self.refusals, sources)
        arguments = tuple(products.argument(argument) for argument in self.flat.arguments)
        sides: dict[str, MapSide] = {side.name: side.map_side(self.catalyst) for side in sources.sides}
        plan = JoinPlan(
            sources=tuple(side.source(sides[side.name].condition) for side in sources.sides),
            keys=tuple(key.name for key in keys),
            arguments=arguments,
            cross=cross,
        )
        return Join(sources, plan, sides)

    def _refuse_unsummed(self) -> None:
        for aggregate in self.flat.aggregates:
            if aggregate.function not in _SUMMED:
                self.refusals.refuse_for_now(
                    aggregate.sql,
                    _UNSUMMED.get(aggregate.function, _LOOKED_UP),
                    "declare the keys of the tables and join on them (strategy='foreign-key'), "
                    "or keep it in a view of the one table that has the column",
                )

    def _refuse_mixed(self, sources: Sources) -> None:
        """Refuse arguments of a ring that read several sources: each is lifted where its source is."""
        for aggregate in self.flat.aggregates:
            assert aggregate.argument is not None or aggregate.function != IN_RING
            for i in (aggregate.argument, *aggregate.others) if aggregate.function == IN_RING else ():
                argument = self.flat.arguments[i or 0]
                if len(sources.localised(argument)[0]) > 1:
                    text = self.refusals.text(argument)
                    self.refusals.refuse_for_now(
                        f"{text} in {aggregate.sql}",
                        "it reads several tables, and a ring lifts a number where its table is",
                        "give an argument per table: the ring multiplies them",
                    )

    def _refuse_across(self, term: Jvm) -> NoReturn:
        self.refusals.refuse_for_now(
            f"the condition {self.refusals.text(term)}",
            "it compares columns of several tables, and sums of products are joined on equal columns only",
            "declare the keys of the tables and join on them (strategy='foreign-key'), "
            "write an equality of one table's expression with another's, or filter the answer when you read it",
        )

    def _key_variable(self, i: int, key: Jvm) -> Variable:
        read, local = self.equalities.sources.localised(bare(key))
        if len(read) > 1:
            self._refuse_key(i, bare(key))
        return self.equalities.variable_of(read[0] if read else 0, local)

    def _refuse_key(self, i: int, key: Jvm) -> NoReturn:
        if self.output_names is not None:
            self.refusals.refuse(
                f"the column {self.output_names[i]!r}",
                "a feature must come from one table, and it reads several",
                "select the columns it is made of, each as a feature",
            )
        what = "GROUP BY" if self.flat.shape is Shape.GROUPS else "the column"
        self.refusals.refuse_for_now(
            f"{what} {self.refusals.text(key)}",
            "it reads columns of several tables, and sums of products have keys of one table each",
            "declare the keys of the tables and join on them (strategy='foreign-key'), "
            "or use the columns it is made of, and compute it from the answer you read",
        )
