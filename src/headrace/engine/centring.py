"""Shifts of features: a number near its mean is subtracted from each feature before it is squared.

Sums of squares lose digits where a mean is large compared with the spread. Subtracting any number near the mean avoids
that, as long as the number never changes. So it is computed from the first rows of a table, and becomes part of the
view's definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from headrace.engine.definition import FeatureMoments, PlannedView
from headrace.operators.kernel import MapSide, ViewKernel
from headrace.plan import native
from headrace.relation.change import ChangeBatch
from headrace.relation.columns import whole
from headrace.relation.product import ProductBatch
from headrace.relation.variables import as_numbers
from headrace.runtime.program import why_catalyst

Given = ChangeBatch | ProductBatch | DataFrame | Callable[[], ChangeBatch]
_SAMPLE = 4096
_FAR = 4.0  # how many spreads away from zero a mean must be before it is worth a shift


class Centred(Protocol):
    """A kernel of moments, whose features may be shifted."""

    @property
    def features(self) -> tuple[str, ...]:
        """The variables whose moments it keeps."""
        ...

    @property
    def sources(self) -> Sequence[tuple[MapSide, tuple[str, ...]]]:
        """Per source: the expressions evaluated on its rows, and the variables that they give."""
        ...

    def with_shifts(self, shifts: Mapping[str, float]) -> ViewKernel:
        """The same kernel, with a shift subtracted from each feature."""
        ...


def with_shifts(view: PlannedView, inputs: Mapping[str, Given]) -> PlannedView | None:
    """The view with shifts for the features whose first rows are in `inputs`; None if there are no such features.

    An input may be a function that reads the rows, because most views do not need them.
    """
    if not isinstance(view.answer, FeatureMoments):
        return None
    kernel, known = cast(Centred, view.kernel), view.definition.shifts  # no other kernel is planned for moments
    features = set(kernel.features) - set(known)
    found: dict[str, float] = {}
    for side, variables in kernel.sources:
        mine = [name for name in variables if name in features and name not in found]
        if side.table in inputs and mine:
            rows = _first_rows(inputs[side.table])
            if rows.num_rows:
                found |= _means(side, variables, mine, rows)
    if not found:
        return None
    shifts = {**known, **found}
    definition = view.definition.with_choice(view.definition.strategy, shifts=shifts)
    return replace(view, definition=definition, kernel=kernel.with_shifts(shifts))


def _first_rows(given: Given) -> pa.Table:
    if isinstance(given, DataFrame):
        return given.limit(_SAMPLE).toArrow()
    if isinstance(given, ProductBatch):  # its values come as often in a few of its rows as in all of them
        return given.sample(_SAMPLE).rows
    batch = given if isinstance(given, ChangeBatch) else given()
    return batch.rows.slice(0, _SAMPLE)


def _means(side: MapSide, names: tuple[str, ...], wanted: list[str], rows: pa.Table) -> dict[str, float]:
    if why_catalyst(side) is not None:  # without a shift results are right too, only with fewer digits
        return dict.fromkeys(wanted, 0.0)
    columns: dict[str, pa.Array] = {name: whole(rows.column(name)) for name in rows.column_names}
    out = {}
    for name in wanted:
        values = native.evaluate(side.keys[names.index(name)], columns, rows.num_rows)
        out[name] = _near_mean(as_numbers(whole(values).drop_null()))
    return out


def _near_mean(values: NDArray[np.float64]) -> float:
    values = values[np.isfinite(values)]
    if not len(values) or abs(values.mean()) < _FAR * values.std() or values.mean() == 0:
        return 0.0
    # Few digits, so that subtracting the shift rounds as little as possible.
    return float(f"{values.mean():.2e}")
