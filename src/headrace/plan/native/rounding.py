"""Rounding to whole numbers and to places: of decimals, and of doubles where no decimal text decides.

ROUND of a double is not here: Spark rounds the shortest text that reads back as the double, which depends on Java.
`value` of FLOOR and CEIL is False where a number that is too large raises no error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.plan.expression import Expression
from headrace.plan.native.decimals import HALF_UP, rounded
from headrace.plan.native.rule import Datum, NeedsCatalyst, Rows, Rule, literal_int
from headrace.plan.native.vectors import elementwise

_WHOLE = np.iinfo(np.int64)


def _whole_types(node: Expression) -> bool:
    (source,) = (arg.type for arg in node.args)
    if source.is_decimal:
        return node.type.is_decimal and node.type.scale == 0
    return node.type.kind == "bigint" and source.kind in ("bigint", "double")


def _to_whole(mode: str, function: Callable[..., NDArray[Any]]) -> Rule:
    def compute(node: Expression, rows: Rows) -> Datum:
        values = rows.value(node.args[0])
        if node.type.is_decimal:
            return rounded(values, node.type.arrow, mode, 0)
        if node.args[0].type.kind == "bigint":
            return values
        return elementwise(lambda numbers: _long(function(numbers), node.value is not False), pa.int64(), values)

    return Rule(_whole_types, compute)


def _long(numbers: NDArray[np.float64], raises: bool) -> NDArray[np.int64]:
    """Convert as Java does: NaN is 0, and what is too large, if that is no error, becomes the largest number."""
    inside = (numbers >= -(2.0**63)) & (numbers < 2.0**63)
    if raises and not bool(np.all(inside | np.isnan(numbers))):
        raise NeedsCatalyst("a number is too large for bigint")
    outside = np.where(np.isnan(numbers), 0, np.where(numbers > 0, _WHOLE.max, _WHOLE.min))
    return np.where(inside, np.where(inside, numbers, 0.0).astype(np.int64), outside)


def _places_types(node: Expression) -> bool:
    source, places = node.args[0].type, literal_int(node.args[1])
    if places is None or abs(places) > 38:
        return False
    if source.is_integer:
        return node.type == source and places >= 0
    return source.is_decimal and node.type.is_decimal and node.type.scale == max(0, min(source.scale, places))


def _to_places(mode: str) -> Rule:
    def compute(node: Expression, rows: Rows) -> Datum:
        values, places = rows.value(node.args[0]), literal_int(node.args[1]) or 0
        if node.type.is_integer:
            return values
        return rounded(values, node.type.arrow, mode, min(places, values.type.scale))

    return Rule(_places_types, compute)


RULES = {
    "Floor": _to_whole("down", np.floor),
    "Ceil": _to_whole("up", np.ceil),
    "Round": _to_places(HALF_UP),
    "BRound": _to_places("half_to_even"),
    "RoundFloor": _to_places("down"),
    "RoundCeil": _to_places("up"),
}
