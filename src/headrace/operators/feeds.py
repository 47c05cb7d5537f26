"""What happens to rows on their way from one operator to the next: a condition, new columns, a multiplicity.

A feed is evaluated on columns, for changed rows only. Where only Spark can evaluate it, the runtime has Catalyst do so
between two stages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.operators.changes import Changes
from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.tree import Feed, Field
from headrace.relation.coded import Column, take_any, values
from headrace.relation.columns import whole
from headrace.relation.keys import fixed_values
from headrace.relation.types import SqlType


def fed(feed: Feed, changes: Changes, fields: Sequence[Field]) -> Changes:
    """Evaluate a feed on changes of its producer; the result has the fields of the port that it ends in.

    Raises
    ------
    NeedsCatalyst : a row overflows, or is out of the range that is known to equal Spark's; Spark has to evaluate it.
    """
    columns, diff = changes.columns, changes.diff
    arrays: dict[str, pa.Array] = {}

    def evaluated(expression: Expression) -> pa.Array:
        for name in expression.columns - arrays.keys():
            arrays[name] = values(columns[name])
        return native.evaluate(expression, arrays, len(diff))

    if feed.condition is not None:
        mask = evaluated(feed.condition)
        keep = np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))
        if len(keep) < len(diff):
            needed = {name for e in feed.outputs for name in e.columns}
            needed |= set() if feed.times is None else feed.times.columns
            columns = {name: take_any(columns[name], keep) for name in needed}
            arrays, diff = {}, diff[keep]
    if feed.times is not None:
        diff = repeated(diff, evaluated(feed.times))
    given: dict[str, Column] = {}
    for field, output in zip(fields, feed.outputs, strict=True):
        # A column that is handed on as it is need not be read.
        as_it_is = output.op == "column"
        given[field.name] = columns[str(output.value)] if as_it_is else whole(evaluated(output))
    return Changes(given, diff)


def repeated(diff: np.ndarray, times: pa.Array) -> np.ndarray:
    """The multiplicities of rows, each multiplied by its repeat count in `times` (at least 0)."""
    return diff * np.maximum(fixed_values(whole(times), SqlType("bigint")).astype(np.int64), 0)


def why_catalyst(feed: Feed) -> str | None:
    """Say which expression of a feed needs Catalyst; None if all can be evaluated on columns."""
    return next((reason for reason in map(native.why_not, feed.expressions) if reason is not None), None)
