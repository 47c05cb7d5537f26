"""What a view makes of joined rows: the conditions, keys and arguments that read several tables.

Parts that read one table were evaluated before the join, by Spark where only Spark can. What is left is evaluated here,
on columns, for the rows that appear or disappear in a step and for no others.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def refused(self, source: Source, layout: ViewLayout, rows: Evaluated) -> dict[int, str]:
        """Find rows with doubles that a sum could not take away again."""
        at = {name: i for i, name in enumerate(source.variable_names)}
        summed = [
            at[str(expression.value)]
            for i, expression in enumerate(self.rows.arguments)
            if expression.op == "column" and expression.value in at and layout.component("sum", i) is not None
        ]
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
        return Evaluated(keys, arguments, everything.diff, everything.origin)

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
                way_out="cast its parts to a wider type in the view; nothing of this step was applied",
            ) from error
