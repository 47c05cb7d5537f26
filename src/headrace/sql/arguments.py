"""What an aggregate function is told beside its values: a rank, a delimiter, an order.

Catalyst has these among the children of a function, or as settings of its class. Here they become the arguments of an
aggregate and its options, and what a view cannot keep of them is refused.
"""

from __future__ import annotations

from headrace.sql.jvm import Jvm, items, kind, option
from headrace.sql.refusals import Refusals

Options = tuple[str | float | bool, ...]


def arguments_of(name: str, call: Jvm, refusals: Refusals) -> tuple[list[Jvm], Options]:
    """The arguments of an aggregate function, and its options.

    Parameters
    ----------
    name : what a plan calls the function, without a DISTINCT.
    """
    function = call.aggregateFunction()
    match name:
        case "max_by" | "min_by":
            return [function.orderingExpr(), function.valueExpr()], ()
        case "percentile":
            weight = function.frequencyExpression()
            if kind(weight) != "Literal" or int(weight.value()) != 1:
                refusals.refuse_for_now(
                    refusals.text(call), "it takes each value several times", "leave the frequency out"
                )
            return [function.child()], (_rank(call), bool(function.reverse()))
        case "percentile_disc":
            if function.legacyCalculation():
                refusals.refuse_for_now(
                    refusals.text(call),
                    "spark.sql.legacy.percentileDiscCalculation makes it another value of the group",
                    "leave that setting off when the session starts",
                )
            return [function.child()], (_rank(call), bool(function.reverse()))
        case "percentile_approx":
            return [function.child()], (_rank(call), False)
        case "mode":
            # Of values that are as frequent the least one, or with DESC the greatest; without an order Spark takes any.
            ascending = option(function.reverseOpt())
            return [function.child()], (ascending is not None and not ascending,)
        case "listagg":
            return _listed(call, refusals)
        case _:
            return items(function.children()), ()


def _rank(call: Jvm) -> float:
    """The rank that a percentile has, from 0 to 1; the optimizer has made a constant of it.

    Where it is an array, so is the answer, and that has been refused as a type.
    """
    return float(call.aggregateFunction().percentageExpression().value())


def _listed(call: Jvm, refusals: Refusals) -> tuple[list[Jvm], Options]:
    """The text that is listed and, if the order begins with something else, that; how they are put together."""
    function = call.aggregateFunction()
    child, delimiter = function.child(), function.delimiter()
    between = "" if delimiter.value() is None else delimiter.value().toString()
    order = [
        (item.child(), _is_descending(item), _has_nulls_first(item)) for item in items(function.orderExpressions())
    ]
    texts = [descending for key, descending, _ in order if key.semanticEquals(child)]
    others = [item for item in order if not item[0].semanticEquals(child)]
    is_last = not texts or order[-1][0].semanticEquals(child) or not others
    if len(others) > 1 or not is_last:
        refusals.refuse_for_now(
            f"the order of {refusals.text(call)}",
            "texts are listed by one value, and then by themselves",
            "order by one expression, such as a date, and then by what is listed",
        )
    descending = bool(texts and texts[0])
    if not others:
        return [child], (between, descending)
    key, key_descends, nulls_first = others[0]
    if key.dataType().simpleString() == "string":
        refusals.refuse_for_now(
            f"the order of {refusals.text(call)}",
            "texts are not listed by another text",
            "order by what is listed itself, by a number or by a time",
        )
    return [child, key], (between, descending, key_descends, nulls_first)


def _is_descending(item: Jvm) -> bool:
    return kind(item.direction()).startswith("Descending")


def _has_nulls_first(item: Jvm) -> bool:
    return kind(item.nullOrdering()).startswith("NullsFirst")
