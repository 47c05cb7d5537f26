"""The map side of a step for products: each part is judged, evaluated and lifted by itself.

A view's condition and what it reads of a row are expressions over columns. Those over one part are evaluated on that
part. Parts that one expression reads together, as in `c * e`, are multiplied out before it is evaluated, and only they.
Products are small by nature, so this happens in the driver, and their parts never leave it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa

from headrace.errors import BadRowsError
from headrace.operators.kernel import Evaluated, Lifted, MapSide, PartRows
from headrace.plan.expression import Expression
from headrace.plan.native import NeedsCatalyst
from headrace.relation.change import BadRows, ChangeBatch, set_apart
from headrace.relation.product import ProductBatch, crossed, narrowed
from headrace.runtime.program import BucketResult, Program, TableTask, ViewTask
from headrace.runtime.tasks import Mapped, evaluate

_MOST_ROWS = 1 << 27
"""Rows of parts that one expression reads together: they are made in memory."""


def map_products(program: Program, task: TableTask, given: ProductBatch, result: BucketResult) -> Mapped:
    """Turn products into pieces per bucket; what had to be multiplied out is noted in the result."""
    out = Mapped()
    if program.judge_only:
        return out  # bad parts have ended the step before
    if not task.views_only:
        for term in given.terms:
            _judge(task, term)
        out.passed[task.name] = (len(given), given.net)
    for view in task.views:
        for number, term in enumerate(given.terms):
            for bucket, parts in _lifted(program, task, view, term, str(number), result).items():
                for label, run in parts.items():
                    out.pieces[bucket].runs[view.name, label].append(run)
    return out


def _judge(task: TableTask, term: Sequence[ChangeBatch]) -> None:
    """Refuse a product with rows that break the rules of the table, whatever they are combined with."""
    for part in term:
        _, bad = set_apart(narrowed(task.layout.schema, part.rows.column_names), part)
        if bad is not None:
            raise _refusal(bad)


def _refusal(bad: BadRows) -> BadRowsError:
    columns = ", ".join(bad.rows.column_names)
    error = BadRowsError(
        f"in the part ({columns}) of a product: {bad.error().what}",
        way_out="fix these rows of the part, or leave them out; each stands for many rows, so none is set aside",
    )
    error.bad_rows = bad  # type: ignore[attr-defined]
    return error


def _lifted(
    program: Program,
    task: TableTask,
    view: ViewTask,
    term: tuple[ChangeBatch, ...],
    name: str,
    result: BucketResult,
) -> Lifted:
    parts = []
    for batch, side, keys, arguments in _sides(view, term, result):
        try:
            found = evaluate(replace(view, side=side, prefix=None), batch.rows, batch.diff)
        except NeedsCatalyst as error:
            raise BadRowsError(
                f"view {view.name!r}: only Spark gives the value of {error}, and it evaluates rows, not parts",
                way_out="multiply the product out: apply change.to_arrow()",
            ) from error
        rows = _as_wide(view.side, found, keys, arguments)
        if wrong := view.kernel.refused(view.side.source, rows):
            at = np.array(sorted(wrong))
            chosen = batch.take(found.origin[at])
            reasons = [f"view {view.name!r}: {wrong[i]}" for i in at.tolist()]
            raise _refusal(BadRows(task.name, chosen.rows, chosen.diff, reasons, judge=view.name))
        parts.append(PartRows(rows, frozenset(keys), frozenset(arguments)))
    return view.kernel.lift_product(view.side.source, parts, name, program.buckets)


def _sides(
    view: ViewTask, term: tuple[ChangeBatch, ...], result: BucketResult
) -> Iterator[tuple[ChangeBatch, MapSide, list[int], list[int]]]:
    """Per part the share of the map side that reads it, with the numbers of its keys and arguments.

    Parts that one expression reads together come as one.
    """
    side = view.side
    conjuncts = list(_conjuncts(side.condition))
    group = list(range(len(term)))  # per part the first of those that it is multiplied out with
    for expression in (*conjuncts, *side.keys, *side.arguments):
        together = {group[i] for i in _read(expression, term)}
        group = [min(together) if g in together else g for g in group]
    for first in sorted(set(group)):
        own = tuple(part for part, g in zip(term, group, strict=True) if g == first)

        def of(expressions: Sequence[Expression], first: int = first) -> list[int]:
            return [i for i, e in enumerate(expressions) if group[next(iter(_read(e, term)), 0)] == first]

        keys, arguments, conditions = of(side.keys), of(side.arguments), of(conjuncts)
        narrow = MapSide(
            side.table,
            side.source,
            reduce(_and, [conjuncts[i] for i in conditions]) if conditions else None,
            tuple(side.keys[i] for i in keys),
            tuple(side.arguments[i] for i in arguments),
        )
        yield _together(view, own, result), narrow, keys, arguments


def _together(view: ViewTask, parts: tuple[ChangeBatch, ...], result: BucketResult) -> ChangeBatch:
    if len(parts) == 1:
        return parts[0]
    columns = ", ".join(name for part in parts for name in part.rows.column_names)
    what, rows = f"rows of {view.side.source or view.side.table}({columns})", 1
    for part in parts:
        rows *= len(part)
    if rows > _MOST_ROWS:
        raise BadRowsError(
            f"view {view.name!r} reads {columns} in one expression, so these parts are multiplied out: {rows:,} rows",
            way_out=f"apply it in several steps of at most {_MOST_ROWS:,} such rows each",
        )
    made = result.multiplied.setdefault(view.name, {})
    made[what] = made.get(what, 0) + rows
    return crossed(parts)


def _read(expression: Expression, term: tuple[ChangeBatch, ...]) -> list[int]:
    """The parts that have columns of an expression."""
    columns = expression.columns
    return [i for i, part in enumerate(term) if columns.intersection(part.rows.column_names)]


def _conjuncts(condition: Expression | None) -> Iterator[Expression]:
    """The conditions all of which a row has to pass."""
    if condition is not None and condition.op == "And":
        for arg in condition.args:
            yield from _conjuncts(arg)
    elif condition is not None:
        yield condition


def _and(left: Expression, right: Expression) -> Expression:
    return Expression("And", left.type, f"({left} AND {right})", (left, right))


def _as_wide(side: MapSide, rows: Evaluated, keys: Sequence[int], arguments: Sequence[int]) -> Evaluated:
    """The values of a part in a row's places for them."""
    n = len(rows.diff)
    there = pa.array(np.ones(n, bool))
    every_key = [there] * len(side.keys)
    every_argument = [pa.nulls(n, argument.type.arrow) for argument in side.arguments]
    for i, value in zip(keys, rows.keys, strict=True):
        every_key[i] = value
    for i, value in zip(arguments, rows.arguments, strict=True):
        every_argument[i] = value
    return Evaluated(every_key, every_argument, rows.diff, np.arange(n))
