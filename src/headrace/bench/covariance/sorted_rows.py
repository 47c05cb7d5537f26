"""Rows in the order of F-IVM's variable orders, as the streams of its paper have them (Section 9.1).

The generators give rows in random order, which is harder: a batch then touches as many keys as it has rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headrace.datasets import Dataset


def sorted_rows(data: Dataset, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Sort each table by its variables, those nearer to the root of the variable order first.

    >>> from headrace.datasets import dataset
    >>> sales = pa.table({"item": [1, 2, 3], "store": [7, 7, 5], "date": [4, 3, 4]})
    >>> sorted_rows(dataset("favorita"), {"sales": sales})["sales"].column("item").to_pylist()
    [2, 3, 1]
    """
    variables = [line.partition(":")[0].strip() for line in data.order.splitlines()]
    return {
        name: table.sort_by([(variable, "ascending") for variable in variables if variable in table.column_names])
        for name, table in tables.items()
    }
