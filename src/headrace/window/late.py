"""Rows that came too late, after the horizon: they are in no answer, and are kept aside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.relation.run import merge
from headrace.relation.runset import AnyRun
from headrace.rings import COUNT
from headrace.window.exact import times_of
from headrace.window.window_view import SIDES, WindowView

_KEY, _VALUE = "k", "v"


def read_late(view: WindowView, runs: Sequence[AnyRun]) -> pa.Table:
    """Return the rows that came too late: side, keys, event and arrival, and the value if their side is aggregated."""
    left = view.streams[0]
    names = [str(key) for key in left.keys]
    run = merge(COUNT, list(runs)) if runs else None  # type: ignore[arg-type]
    if run is None:
        sides, times = np.zeros(0, np.int64), np.zeros((2, 0), np.int64)
    else:
        numbers = times_of(run.words[:3])
        numbers = np.repeat(numbers, run.payload[0], axis=1)
        sides, times = numbers[0], numbers[1:]
    columns: dict[str, pa.Array] = {"side": pa.array(np.array(SIDES)[sides], pa.string())}
    for i, (name, key) in enumerate(zip(names, left.keys, strict=True)):
        columns[name] = (
            pa.array([], key.type.arrow) if run is None else _repeated(run.values[f"{_KEY}{i}"], run.payload[0])
        )
    for name, moments in zip(("event", "arrival"), times, strict=True):
        columns[name] = pa.array(np.ascontiguousarray(moments)).cast(pa.timestamp("us", "UTC"))
    columns["value"] = pa.array([], pa.float64()) if run is None else _repeated(run.values[_VALUE], run.payload[0])
    return pa.table(columns)


def _repeated(column: pa.Array, times: np.ndarray) -> pa.Array:
    return column.take(pa.array(np.repeat(np.arange(len(column)), times)))
