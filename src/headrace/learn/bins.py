"""Bins: ranges of a number that are taken for categories, fixed when a model is made.

Edges that moved with the data would put old rows into other bins, and everything would have to be counted anew. So they
are part of the model's settings, and a value beyond the outer ones is in the first bin or in the last (Section 9.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.learn.learner import Derived
from headrace.learn.polynomial import quoted

Bins = Mapping[str, tuple[float, ...]]


def bins_of(bins: Mapping[str, Sequence[float]] | None) -> dict[str, tuple[float, ...]]:
    """Check the inner edges of the bins of each feature.

    >>> bins_of({"price": [100, 250.5]})
    {'price': (100.0, 250.5)}
    """
    if bins is None:
        return {}
    if not isinstance(bins, Mapping):
        raise SchemaError(
            f"bins={bins!r} does not say where the edges are",
            way_out="give edges, as in {'price': [100, 200]}; hr.equal_bins(frame, ['price'], 10) finds some",
        )
    made = {}
    for name, edges in bins.items():
        found = tuple(float(edge) for edge in edges)
        if not found or not np.isfinite(found).all() or any(low >= high for low, high in pairwise(found)):
            raise SchemaError(
                f"the bins of {name!r} have the edges {list(edges)!r}",
                way_out="give numbers, at least one, each larger than the one before",
            )
        made[name] = found
    return made


def equal_bins(frame: Any, features: Sequence[str], count: int) -> dict[str, list[float]]:
    """The inner edges of bins with about equally many rows of a table in each, for models that are made from now on.

    >>> equal_bins(pd.DataFrame({"x": range(100)}), ["x"], 4)
    {'x': [25.0, 50.0, 75.0]}

    Parameters
    ----------
    frame : a pandas DataFrame or an Arrow table with rows that are typical.
    features : the columns to make bins for.
    count : how many bins; fewer where many rows have the same value.
    """
    if count < 2:
        raise SchemaError(f"{count} bins tell nothing apart", way_out="choose 2 or more")
    from headrace.learn.frames import columns_of

    found = {}
    for name, values in zip(features, columns_of(frame, features), strict=True):
        values = np.sort(values[~np.isnan(values)])
        if not len(values):
            raise SchemaError(f"no row of the table has {name!r}", way_out="give a table with rows that are typical")
        cuts = np.unique(values[(np.arange(1, count) * len(values)) // count])
        found[name] = [float(cut) for cut in cuts[cuts > values[0]]] or [float(values[0])]
    return found


def bin_sql(name: str, edges: Sequence[float]) -> str:
    """The number of a value's bin in SQL: how many edges are not above it; NULL for NULL.

    >>> bin_sql("x", (0.5, 2.0))
    'CASE WHEN `x` IS NULL THEN NULL WHEN `x` < 0.5D THEN 0 WHEN `x` < 2.0D THEN 1 ELSE 2 END'
    """
    cases = [f"WHEN {quoted(name)} < {edge!r}D THEN {i}" for i, edge in enumerate(edges)]
    return f"CASE WHEN {quoted(name)} IS NULL THEN NULL {' '.join(cases)} ELSE {len(edges)} END"


def derived_of(bins: Bins) -> tuple[Derived, ...]:
    """The columns that take the place of the binned ones."""
    return tuple(Derived(name, bin_sql(name, edges), replaces=True) for name, edges in bins.items())


def binned(frame: Any, bins: Bins, among: Sequence[str]) -> Any:
    """A pandas or Arrow table with the bins of these columns in their place."""
    from headrace.learn.frames import columns_of

    for name in among:
        if name not in bins:
            continue
        (values,) = columns_of(frame, [name])
        found, missing = np.searchsorted(bins[name], values, side="right"), np.isnan(values)
        if isinstance(frame, pd.DataFrame):
            frame = frame.assign(**{name: pd.arrays.IntegerArray(found.astype(np.int64), missing)})
        else:
            table = pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame
            frame = table.set_column(table.schema.get_field_index(name), name, pa.array(found, mask=missing))
    return frame
