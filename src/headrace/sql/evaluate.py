"""A view's expressions, evaluated by Catalyst itself.

Whatever Headrace cannot evaluate natively, Spark does, with the very expressions it planned: they are bound to the
columns of a DataFrame and used in it as columns. This side holds objects of the JVM and stays on the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame

from headrace.errors import SchemaError
from headrace.plan.expression import Expression
from headrace.plan.view import ViewPlan
from headrace.sql.flatten import Flat
from headrace.sql.jvm import Catalyst, Jvm, items

_SORTS = {  # by (descending, nulls first)
    (False, True): Column.asc_nulls_first,
    (False, False): Column.asc_nulls_last,
    (True, True): Column.desc_nulls_first,
    (True, False): Column.desc_nulls_last,
}


@dataclass(frozen=True)
class CatalystView:
    """The three parts of a view as Catalyst expressions; `plan` says the same without Spark."""

    catalyst: Catalyst
    plan: ViewPlan
    flat: Flat
    not_null: tuple[bool, ...]

    def map_columns(self, changes: DataFrame, prefix: str = "", only: Collection[str] | None = None) -> list[Column]:
        """The map side over the table's columns: `c` (condition), `k0..` (keys), `v0..` (arguments), in this order.

        Keys and arguments are NULL where the condition does not hold, and are not evaluated there, so a row that
        the view leaves out cannot raise. A NULL condition means that it does not hold.

        Parameters
        ----------
        changes : has the columns of the table, by name.
        prefix : put before the name of every column.
        only : names (without the prefix) to return; all when None.
        """
        flat, plan = self.flat, self.plan
        wanted: dict[str, tuple[Jvm, Expression]] = {}
        if plan.condition is not None:
            wanted["c"] = (flat.condition, plan.condition)
        wanted |= {f"k{i}": pair for i, pair in enumerate(zip(flat.keys, plan.keys, strict=True))}
        wanted |= {f"v{i}": pair for i, pair in enumerate(zip(flat.arguments, plan.arguments, strict=True))}
        wanted = {name: pair for name, pair in wanted.items() if only is None or name in only}
        reads = frozenset().union(*(expression.columns for _, expression in wanted.values()))
        if plan.condition is not None:
            reads |= plan.condition.columns
        guarded = [node if name == "c" else self._guarded(node) for name, (node, _) in wanted.items()]
        columns = self._bind(guarded, items(flat.leaf.output()), changes, reads)
        return [column.alias(prefix + name) for name, column in zip(wanted, columns, strict=True)]

    def finish(self, groups: DataFrame, keep: Sequence[str] = ()) -> DataFrame:
        """The answer over columns `k0..`, `a0..`: HAVING, outputs with the query's names and types, and ORDER BY.

        Columns named in `keep` (such as `__diff`) are passed on after the outputs.
        """
        flat, plan = self.flat, self.plan
        reads = frozenset().union(*(output.expression.columns for output in plan.outputs))
        if flat.having is not None and plan.having is not None:
            condition = self._bind([flat.having], flat.slots, groups, plan.having.columns)[0]
            groups = groups.where(condition)
        # A group's columns arrive as nullable; the query's own schema may promise more.
        outputs = [
            self.catalyst.expressions.KnownNotNull(node) if promised else node
            for node, promised in zip(flat.outputs, self.not_null, strict=True)
        ]
        columns = self._bind(outputs, flat.slots, groups, reads)
        named = [column.alias(output.name) for column, output in zip(columns, plan.outputs, strict=True)]
        kept = [self._column(_attribute(groups, name)) for name in keep]
        answer = groups.select(*named, *kept)
        return answer.orderBy(*self._order(answer)) if flat.order else answer

    def _order(self, answer: DataFrame) -> list[Column]:
        attributes = items(answer._jdf.queryExecution().analyzed().output())
        return [_SORTS[descending, first](self._column(attributes[i])) for i, descending, first in self.flat.order]

    def _guarded(self, node: Jvm) -> Jvm:
        return node if self.flat.condition is None else self.catalyst.when(self.flat.condition, node)

    def _bind(self, nodes: list[Jvm], attributes: list[Jvm], df: DataFrame, reads: Iterable[str]) -> list[Column]:
        """Columns of `df` from expressions over `attributes`, matched by name."""
        reads = frozenset(reads)
        pairs = []
        for attribute in attributes:
            if attribute.name() in reads:
                found = _attribute(df, attribute.name())
                if not found.dataType().sameType(attribute.dataType()):
                    raise SchemaError(
                        f"column {attribute.name()!r} is {found.dataType().simpleString()}, "
                        f"not {attribute.dataType().simpleString()}",
                        way_out="cast it to the type of the table's column",
                    )
                pairs.append((attribute, found))
        return [self._column(node) for node in self.catalyst.rewrite(nodes, self.flat.leaf, pairs)]

    def _column(self, node: Jvm) -> Column:
        return Column(self.catalyst.jvm.org.apache.spark.sql.classic.ExpressionUtils.column(node))


def _attribute(df: DataFrame, name: str) -> Jvm:
    names = df.columns
    if names.count(name) != 1:
        raise SchemaError(
            f"column {name!r} is needed once, and is there {names.count(name)} times among {', '.join(names)}",
            way_out="give the DataFrame exactly the columns of the table",
        )
    return df._jdf.queryExecution().analyzed().output().apply(names.index(name))
