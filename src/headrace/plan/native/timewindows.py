"""The bounds of time windows: one formula for the dozen operations that Spark's analyser makes of each bound.

Windows are aligned to 1970-01-01 00:00 UTC whatever the time zone of the session is, so no calendar is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.plan.expression import Expression
from headrace.plan.native.rule import Datum, NeedsCatalyst, Rows, Rule, over_args, result_of_args
from headrace.plan.native.vectors import elementwise
from headrace.plan.timewindow import WindowBound, window_bound
from headrace.relation.types import SqlType

_FARTHEST = 2**62  # microseconds; beyond it a sum might overflow, so Spark's own arithmetic decides


def _bound(bound: WindowBound, type: SqlType, rows: Rows) -> Datum:
    def compute(micros: NDArray[Any]) -> NDArray[Any]:
        if bool(np.any((micros > _FARTHEST) | (micros < -_FARTHEST))):
            raise NeedsCatalyst("a time is too far away for the arithmetic of windows")
        since = np.mod(micros - bound.offset, bound.slide)
        result: NDArray[Any] = micros - since + (bound.duration - bound.back)
        return result

    return elementwise(compute, type.arrow, rows.value(bound.time))


def _conversion_types(node: Expression) -> bool:
    kinds = {node.type.kind, node.args[0].type.kind}
    return "bigint" in kinds and bool(kinds & {"timestamp", "timestamp_ntz"})


def _converted(node: Expression, rows: Rows) -> Datum:
    bound = window_bound(node)
    return _bound(bound, node.type, rows) if bound else pc.cast(rows.value(node.args[0]), node.type.arrow)


def _operands(node: Expression) -> tuple[Expression, ...]:
    bound = window_bound(node)
    return (bound.time,) if bound else node.args


RULES = {
    "PreciseTimestampConversion": Rule(_conversion_types, _converted, _operands),
    "KnownNullable": Rule(result_of_args, over_args(lambda a: a)),
}
