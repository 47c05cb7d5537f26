"""Aggregates that are looked up in arrangements whenever they are read: MIN and MAX, MAX_BY, MODE, LISTAGG, bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.operators.bits import value_of_bits
from headrace.operators.extremes import extreme_values
from headrace.operators.frequency import most_frequent
from headrace.operators.layout import GROUPS, ViewLayout, bits, ordered
from headrace.operators.listed import listed
from headrace.operators.pairs import value_beside
from headrace.plan.view import Aggregate
from headrace.relation.kernels import Words
from headrace.relation.runset import AnyRun, RunSet, as_set
from headrace.rings import Payload

Found = Mapping[str, pa.Array]
"""The value of each group, by the column that `ViewLayout.column_of` names."""


def as_sets(state: Mapping[str, Sequence[AnyRun]]) -> dict[str, RunSet]:
    """The arrangements of values, each to be searched as one."""
    return {name: as_set(runs) for name, runs in state.items() if name != GROUPS}


def look_up(layout: ViewLayout, state: Mapping[str, RunSet], groups: Words, payload: Payload) -> dict[str, pa.Array]:
    """Look up the values of groups, which are in ascending order and have these payloads."""
    return {name: _value(layout, state, one, groups, payload) for name, one in layout.looked_up.items()}


def nothing(layout: ViewLayout, groups: int) -> dict[str, pa.Array]:
    """What is found for groups that have no rows."""
    return {name: pa.nulls(groups, one.type.arrow) for name, one in layout.looked_up.items()}


def _value(
    layout: ViewLayout, state: Mapping[str, RunSet], one: Aggregate, groups: Words, payload: Payload
) -> pa.Array:
    assert one.argument is not None
    kind = layout.plan.arguments[one.argument].type
    match one.function:
        case "min" | "max":
            return extreme_values(state[ordered(one.argument)], groups, kind, smallest=one.function == "min")
        case "max_by" | "min_by":
            return value_beside(layout, state, one, groups)
        case "mode":
            return most_frequent(state[f"frequency{one.argument}"], groups, kind, greatest=bool(one.options[0]))
        case "bit_and" | "bit_or":
            counted = layout.component("present", one.argument)
            present = layout.ring.split(payload)[0 if counted is None else counted][0].astype(np.int64)
            runs = state[bits(one.argument)]
            return value_of_bits(runs, groups, kind, present, every=one.function == "bit_and")
        case _:
            return listed(layout, state, one, groups)
