"""Squares and products of columns as features: degree 2 of the names that a user chooses.

A regression over products needs moments of degree four, which the covariance ring has not. But a product is a column of
the query like any other, as long as both of its factors come from one table; its moments are then of degree two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

import pandas as pd
import pyarrow as pa

from headrace.learn.frames import check_columns, columns_of, is_spark, spark_column


def products_of(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """All products of two of these columns, by the names that scikit-learn's `PolynomialFeatures` gives them.

    >>> products_of(["a", "b"])
    {'a^2': ('a', 'a'), 'a b': ('a', 'b'), 'b^2': ('b', 'b')}
    """
    pairs = combinations_with_replacement(names, 2)
    return {f"{a}^2" if a == b else f"{a} {b}": (a, b) for a, b in pairs}


def product_sql(left: str, right: str) -> str:
    """The product in SQL, of doubles, so that products of integers do not overflow.

    >>> product_sql("a", "b")
    'CAST(`a` AS DOUBLE) * CAST(`b` AS DOUBLE)'
    """
    return " * ".join(f"CAST({quoted(name)} AS DOUBLE)" for name in (left, right))


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def with_products(frame: Any, products: Mapping[str, tuple[str, str]]) -> Any:
    """A table of any kind with a column for each product; columns that are no numbers, or missing, are refused."""
    if not products:
        return frame
    if is_spark(frame):
        check_columns(frame.columns, list(dict.fromkeys(name for pair in products.values() for name in pair)))
        return frame.withColumns({name: spark_column(a) * spark_column(b) for name, (a, b) in products.items()})
    if not isinstance(frame, pd.DataFrame | pa.Table | pa.RecordBatch):
        return frame  # refused by whoever reads it
    made = {}
    for name, pair in products.items():
        left, right = columns_of(frame, pair) if pair[0] != pair[1] else columns_of(frame, pair[:1]) * 2
        made[name] = left * right
    if isinstance(frame, pd.DataFrame):
        return frame.assign(**made)
    table = pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame
    others = [name for name in table.column_names if name not in made]
    table = table.select(others)
    for name, values in made.items():
        table = table.append_column(name, pa.array(values, from_pandas=True))
    return table
