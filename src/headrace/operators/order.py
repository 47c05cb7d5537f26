"""ORDER BY and LIMIT of an answer as it is read, in Spark's order of values.

The state of a view holds all groups, so that a deletion can bring up rows from below the LIMIT; the LIMIT is applied
only when the answer is read. To make the top a function of the data, ties are broken by all other columns. Arrow's own
sort is no help, since it puts NaN beside NULL and NULL at one end for all columns, so values are compared by their key
words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.plan.view import Order, ViewPlan
from headrace.relation.change import cancelled
from headrace.relation.columns import take_rows, whole
from headrace.relation.keys import fixed_values, ordered_words, validity
from headrace.relation.schema import DIFF
from headrace.relation.types import SqlType

Positions = NDArray[np.int64]
Word = NDArray[np.uint64]
Types = Mapping[str, SqlType]


def total_order(plan: ViewPlan) -> tuple[Order, ...]:
    """The columns that decide which rows a LIMIT keeps: those of ORDER BY, then all others, ascending."""
    named = {item.column for item in plan.order}
    others = (Order(o.name, descending=False, nulls_first=True) for o in plan.outputs if o.name not in named)
    return (*plan.order, *others)


def arranged(plan: ViewPlan, answer: pa.Table) -> pa.Table:
    """Give the rows of an answer as the query arranges them: in its order, and no more than its LIMIT."""
    if plan.limit is not None:
        return top(plan, answer, plan.limit)
    if not plan.order:
        return answer
    return take_rows(answer, _sorted(_words(_types(plan), answer, plan.order), answer.num_rows))


def top(plan: ViewPlan, answer: pa.Table, count: int) -> pa.Table:
    """Give the first rows of an answer in its total order."""
    return first_rows(answer, total_order(plan), _types(plan), count)


def first_rows(rows: pa.Table, order: tuple[Order, ...], types: Types, count: int) -> pa.Table:
    """Give the first rows in an order that names all columns."""
    if count == 0:
        return rows.slice(0, 0)
    rows = take_rows(rows, _candidates(types, rows, order, count))
    words = [*_words(types, rows, order), *_signs(types, rows)]
    return take_rows(rows, _sorted(iter(words), rows.num_rows)[:count])


def limited_changes(plan: ViewPlan, after: pa.Table, changes: pa.Table) -> pa.Table:
    """The changes of the first rows of an answer, those within its LIMIT.

    Parameters
    ----------
    after : the whole answer after the step, without its LIMIT.
    changes : the changes of the whole answer, with `__diff`.
    """
    assert plan.limit is not None
    if not changes.num_rows:
        return changes
    diff = whole(changes.column(DIFF)).to_numpy()
    # A row that was among the first before the step has moved back by at most the number of inserted rows.
    head = top(plan, after, plan.limit + int(diff[diff > 0].sum()))
    undone = changes.set_column(changes.column_names.index(DIFF), DIFF, pa.array(-diff))
    before = cancelled(pa.concat_tables([_with_diff(head, 1), undone]))
    # A row inserted behind the head is not in it, so there is nothing to subtract it from.
    times = np.maximum(whole(before.column(DIFF)).to_numpy(), 0)
    repeated = np.repeat(np.arange(before.num_rows), np.minimum(times, plan.limit))
    was = top(plan, take_rows(before.drop_columns([DIFF]), repeated), plan.limit)
    now = top(plan, head, plan.limit)
    return cancelled(pa.concat_tables([_with_diff(was, -1), _with_diff(now, 1)]).cast(changes.schema))


def _with_diff(rows: pa.Table, diff: int) -> pa.Table:
    return rows.append_column(DIFF, pa.array(np.full(rows.num_rows, diff, np.int64)))


def _sorted(words: Iterator[Word], rows: int) -> Positions:
    keys = list(words)
    return np.lexsort(keys[::-1]) if keys else np.arange(rows)


def _candidates(types: Types, answer: pa.Table, order: tuple[Order, ...], count: int) -> Positions:
    """Choose rows that include the first ones; a further column is read only where the columns before it tie."""
    tied, chosen = np.arange(answer.num_rows), []
    for item in order:
        if len(tied) <= count:
            break
        at = np.arange(len(tied))
        for word in _words(types, take_rows(answer.select([item.column]), tied), (item,)):
            if len(at) > count:
                values = word[at]
                edge = np.partition(values, count - 1)[count - 1]
                chosen.append(tied[at[values < edge]])
                count -= len(chosen[-1])
                at = at[values == edge]
        tied = tied[at]
    return np.concatenate([*chosen, tied])


def _types(plan: ViewPlan) -> Types:
    return {output.name: output.expression.type for output in plan.outputs}


def _words(types: Types, answer: pa.Table, order: tuple[Order, ...]) -> Iterator[Word]:
    """Words that sort as the rows are to be sorted, the most significant first."""
    for item in order:
        column = whole(answer.column(item.column))
        present = validity(column)
        if column.null_count:
            yield (present if item.nulls_first else ~present).astype(np.uint64)
        for word in _value_words(column, types[item.column]):
            yield np.where(present, ~word if item.descending else word, np.uint64(0))


def _value_words(column: pa.Array, kind: SqlType) -> Iterator[Word]:
    if kind.kind == "string":
        # Strings of any length fit one word as their rank among the strings of the column.
        yield pc.rank(column, tiebreaker="dense").to_numpy().astype(np.uint64)
    else:
        yield from ordered_words(column, kind)


def _signs(types: Types, answer: pa.Table) -> Iterator[Word]:
    """The signs of zeros: 0.0 and -0.0 are equal but look different, so they break the last ties."""
    for name, kind in types.items():
        if answer.num_rows and kind.is_floating:
            column = whole(answer.column(name))
            positive = ~np.signbit(fixed_values(column, kind).astype(np.float64))
            yield np.where(validity(column), positive, False).astype(np.uint64)
