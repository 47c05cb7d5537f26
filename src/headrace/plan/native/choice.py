"""Choice between values: what is not chosen in a row is not evaluated there, so it cannot raise there."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.expression import Expression
from headrace.plan.native.comparison import less
from headrace.plan.native.rule import Datum, Rows, Rule, over_args, result_of_args


def _if(node: Expression, rows: Rows) -> Datum:
    condition, then, otherwise = node.args
    return _chosen(node, rows, [(condition, then)], otherwise)


def _case_when(node: Expression, rows: Rows) -> Datum:
    branches = list(zip(node.args[0::2], node.args[1::2], strict=False))
    return _chosen(node, rows, branches, node.args[-1] if len(node.args) % 2 else None)


def _chosen(
    node: Expression, rows: Rows, branches: list[tuple[Expression, Expression]], otherwise: Expression | None
) -> Datum:
    undecided: Datum = pa.scalar(True)
    choices = []
    for condition, then in branches:
        holds = pc.and_(undecided, pc.fill_null(rows.value_where(undecided, condition), False))
        choices.append((holds, rows.value_where(holds, then)))
        undecided = pc.and_not(undecided, holds)
    result = pa.scalar(None, node.type.arrow) if otherwise is None else rows.value_where(undecided, otherwise)
    for holds, value in reversed(choices):
        result = pc.if_else(holds, value, result)
    return result


def _case_when_types(node: Expression) -> bool:
    values = [*node.args[1::2], *(node.args[-1:] if len(node.args) % 2 else [])]
    return all(value.type == node.type for value in values)


def _coalesce(node: Expression, rows: Rows) -> Datum:
    result = rows.value(node.args[0])
    for arg in node.args[1:]:
        result = pc.coalesce(result, rows.value_where(pc.is_null(result), arg))
    return result


def _extreme(is_better: Callable[[Datum, Datum], Datum]) -> Callable[..., Datum]:
    """The best of the values that are not NULL; the first of those that are equally good, as 0.0 and -0.0 are."""

    def better(best: Datum, value: Datum) -> Datum:
        wins = pc.and_(pc.is_valid(value), pc.or_(pc.is_null(best), pc.fill_null(is_better(value, best), False)))
        return pc.if_else(wins, value, best)

    return lambda *values: reduce(better, values)


RULES = {
    "If": Rule(lambda node: node.args[1].type == node.args[2].type == node.type, _if),
    "CaseWhen": Rule(_case_when_types, _case_when),
    "Coalesce": Rule(result_of_args, _coalesce),
    "NaNvl": Rule(result_of_args, over_args(lambda a, b: pc.if_else(pc.is_nan(a), b, a))),
    "Greatest": Rule(result_of_args, over_args(_extreme(lambda value, best: less(best, value)))),
    "Least": Rule(result_of_args, over_args(_extreme(less))),
}
