"""Generators of the data sets that the papers measure on; they need NumPy and Arrow, and no Spark.

Benchmarks, tests and `headrace data` share them, so that all speak of the same tables, features and joins.
"""

from __future__ import annotations

from headrace.datasets.batches import stream
from headrace.datasets.dataset import Dataset, TableSpec
from headrace.datasets.favorita import FAVORITA
from headrace.datasets.housing import HOUSING
from headrace.datasets.refresh import refresh_steps, rows_after, undo_steps
from headrace.datasets.retailer import RETAILER
from headrace.datasets.ssb import SSB, duplicated_ssb
from headrace.datasets.tpch import TPCH, TPCH_SCHEMAS, duplicated_tpch, tpch_tables
from headrace.datasets.windows import Updates, fifo_updates, fifo_window
from headrace.errors import SchemaError

__all__ = [
    "DATASETS",
    "Dataset",
    "TPCH_SCHEMAS",
    "TableSpec",
    "Updates",
    "dataset",
    "duplicated_ssb",
    "duplicated_tpch",
    "fifo_updates",
    "fifo_window",
    "refresh_steps",
    "rows_after",
    "stream",
    "tpch_tables",
    "undo_steps",
]

DATASETS: dict[str, Dataset] = {data.name: data for data in (HOUSING, RETAILER, FAVORITA, SSB, TPCH)}


def dataset(name: str) -> Dataset:
    """Find a data set by name.

    >>> dataset("housing").label
    'price'
    """
    if name not in DATASETS:
        raise SchemaError(f"there is no data set {name!r}", way_out=f"use one of {', '.join(DATASETS)}")
    return DATASETS[name]
