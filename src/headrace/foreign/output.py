"""What a view makes of joined rows: the conditions, keys and arguments that read several tables.

Parts that read one table were evaluated before the join, by Spark where only Spark can. What is left is evaluated here,
on columns, for the rows that appear or disappear in a step and for no others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.errors import ArithmeticOverflowError
from headrace.foreign.live import Tuples
from headrace.operators.delta import filtered, too_large
from headrace.operators.kernel import Evaluated
from headrace.operators.layout import ViewLayout
from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.join import Source
from headrace.plan.rows import JoinedRows, written
from headrace.relation.columns import take_column, whole
from headrace.relation.keys import values_of_words
from headrace.relation.variables import Variables


@dataclass(frozen=True)
class JoinedRowsOutput:
    """Evaluates what is asked of joined rows."""

    rows: JoinedRows
    variables: Variables
    layout: ViewLayout

    def refused(self, source: Source, rows: Evaluated) -> dict[int, str]:
        """Find rows with doubles that a sum could not take away again."""
        at = {name: i for i, name in enumerate(source.variable_names)}
        bare = [self.rows.arguments[i] for i in self._summed if self.rows.arguments[i].op == "column"]
        summed = [at[str(expression.value)] for expression in bare if expression.value in at]
        return too_large([source.variables[i][1] for i in summed], [rows.keys[i] for i in summed])

    def evaluate(self, changed: Tuples) -> Evaluated:
        """Evaluate the condition on joined rows, and keys and arguments of those that pass."""
        n = changed.rows
        columns = self._columns(changed)
        everything = Evaluated([], [], changed.diff, np.arange(n))
        if self.rows.condition is not None:
            kept = filtered(self._value(self.rows.condition, columns, n), everything)
            if len(kept.diff) < n:
                columns = {name: take_column(column, kept.origin) for name, column in columns.items()}
                everything, n = kept, len(kept.diff)
        keys = [whole(self._value(key, columns, n)) for key in self.rows.keys]
        arguments = [whole(self._value(argument, columns, n)) for argument in self.rows.arguments]
        self._check_sums(arguments)
        return Evaluated(keys, arguments, everything.diff, everything.origin)

    @cached_property
    def _summed(self) -> tuple[int, ...]:
        """The arguments that are summed."""
        return tuple(i for i in range(len(self.rows.arguments)) if self.layout.component("sum", i) is not None)

    def _check_sums(self, arguments: list[pa.Array]) -> None:
        """Refuse a step in which a joined row gives a sum what cannot be taken away again."""
        for i in self._summed:
            if found := too_large([self.rows.arguments[i]], [arguments[i]]):
                raise ArithmeticOverflowError(
                    f"{written(self.rows.arguments[i])} is NaN or infinite (or beyond 1e288) in {len(found)} joined "
                    "rows, and the view sums it",
                    way_out="leave such rows out with WHERE, or correct them; nothing of this step was applied",
                )

    def _columns(self, changed: Tuples) -> dict[str, pa.Array]:
        out = {}
        for name, at in self.variables.slices(changed.order).items():
            if name in changed.texts:
                out[name] = changed.texts[name]
                continue
            kind, words = self.variables.kinds[name], changed.words[at]
            missing = words[-1].astype(bool) if kind.nullable else None
            out[name] = values_of_words(words, kind.type, missing)
        return out

    def _value(self, expression: Expression, columns: dict[str, pa.Array], length: int) -> pa.Array:
        try:
            return native.evaluate(expression, columns, length)
        except native.NeedsCatalyst as error:
            raise ArithmeticOverflowError(
                f"{written(expression)} cannot be computed for a joined row: {error.__cause__ or error}",
                way_out="guard it in the view (CASE WHEN ..., NULLIF), cast its parts to a wider type, or use "
                "strategy='operators', which lets Spark evaluate it; nothing of this step was applied",
            ) from error
