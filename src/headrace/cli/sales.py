"""The demo's data: a table of sales that grows, shrinks and is corrected, from a seed.

This module keeps its own copy of the current rows, apart from Headrace, so that the demo can check every view against
a query over that copy. Rows live in NumPy columns; the changes of a step are drawn and applied without a loop.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SCHEMA = (
    "sale_id BIGINT NOT NULL, shop STRING, product STRING, day DATE, quantity INT, price DECIMAL(10,2), rating DOUBLE"
)
KEY = "sale_id"

VIEWS = {
    "revenue_by_shop": (
        "SELECT shop, COUNT(*) AS sales, SUM(quantity * price) AS revenue, AVG(rating) AS rating "
        "FROM sales GROUP BY shop"
    ),
    "price_range": (
        "SELECT product, MIN(price) AS cheapest, MAX(price) AS dearest, COUNT(rating) AS rated "
        "FROM sales GROUP BY product"
    ),
    "total": "SELECT COUNT(*) AS sales, SUM(quantity) AS units, SUM(quantity * price) AS revenue FROM sales",
    "good_months": (
        "SELECT date_format(day, 'yyyy-MM') AS month, shop, SUM(quantity) AS units, AVG(rating) AS rating FROM sales "
        "WHERE quantity > 1 GROUP BY date_format(day, 'yyyy-MM'), shop HAVING AVG(rating) > 3"
    ),
}

_TOWNS = ("Aarhus", "Bergen", "Cork", "Delft", "Espoo", "Faro", "Ghent", "Haarlem", "Izmir", "Jena")
_SHOPS = pa.array([f"{town} {street}" for town in _TOWNS for street in ("harbour", "market", "station", "university")])
_PRODUCTS = pa.array(
    [f"{kind} {size}" for kind in ("bowl", "cup", "jug", "lamp", "plate", "vase") for size in range(1, 51)]
)
_FIRST_DAY = np.datetime64("2024-01-01").astype(np.int32)
_DAYS = 731

Rows = NDArray[np.void]

_ROW = np.dtype(
    [
        ("sale_id", "i8"),
        ("shop", "i2"),
        ("product", "i2"),
        ("day", "i4"),
        ("quantity", "i4"),
        ("cents", "i8"),
        ("half_stars", "i2"),
    ]
)


class Sales:
    """The current rows of the demo's table."""

    def __init__(self, rows: int, seed: int = 7) -> None:
        self._random = np.random.default_rng(seed)
        self._next_id = 0
        self._count = rows
        self._slots = self._new(rows)  # may have free space behind the current rows

    def __len__(self) -> int:
        return self._count

    def current(self) -> pa.Table:
        """Return all current rows."""
        return _arrow(self._slots[: self._count])

    def step(self, changes: int) -> pa.Table:
        """Change the table (2/5 new rows, 2/5 corrected, 1/5 gone), and return the changes with `__diff`."""
        touched = min(changes * 3 // 5, self._count)
        chosen = self._random.choice(self._count, touched, replace=False, shuffle=False)
        kept, gone = np.split(chosen, [touched * 2 // 3])
        old = self._slots[chosen]
        corrected = old[: len(kept)].copy()
        corrected["cents"] = np.maximum(corrected["cents"] + self._random.integers(-300, 301, len(kept)), 1)
        corrected["half_stars"] = self._half_stars(len(kept))
        new = self._new(changes - touched)
        self._slots[kept] = corrected
        self._slots[gone] = new[: len(gone)]
        self._append(new[len(gone) :])
        added = np.concatenate([corrected, new])
        diff = np.repeat(np.array([-1, 1], np.int64), [len(old), len(added)])
        return _arrow(np.concatenate([old, added])).append_column("__diff", pa.array(diff))

    def _new(self, count: int) -> Rows:
        random = self._random
        rows = np.empty(count, _ROW)
        rows["sale_id"] = np.arange(self._next_id, self._next_id + count)
        self._next_id += count
        # A few shops sell most, as in life; so groups differ in size.
        rows["shop"] = (len(_SHOPS) * random.random(count) ** 1.5).astype(np.int16)
        rows["product"] = random.integers(0, len(_PRODUCTS), count)
        rows["day"] = _FIRST_DAY + random.integers(0, _DAYS, count)
        rows["quantity"] = random.integers(1, 6, count)
        rows["cents"] = 100 + 37 * rows["product"].astype(np.int64) + random.integers(0, 500, count)
        rows["half_stars"] = self._half_stars(count)
        return rows

    def _append(self, rows: Rows) -> None:
        end = self._count + len(rows)
        if end > len(self._slots):
            room = np.empty(end + end // 4, _ROW)
            room[: self._count] = self._slots[: self._count]
            self._slots = room
        self._slots[self._count : end] = rows
        self._count = end

    def _half_stars(self, count: int) -> NDArray[np.int64]:
        """Draw ratings from 1 to 5 stars, and 0 for sales that nobody rated."""
        drawn = self._random.integers(2, 11, count)
        return np.where(self._random.random(count) < 0.2, 0, drawn)


def _arrow(rows: Rows) -> pa.Table:
    # Half stars are exact in binary, so sums of ratings are too, in any order: views can be compared bit by bit.
    return pa.table(
        {
            "sale_id": np.ascontiguousarray(rows["sale_id"]),
            "shop": _SHOPS.take(pa.array(rows["shop"])),
            "product": _PRODUCTS.take(pa.array(rows["product"])),
            "day": pa.array(np.ascontiguousarray(rows["day"])).cast(pa.date32()),
            "quantity": np.ascontiguousarray(rows["quantity"]),
            "price": _decimal(rows["cents"]),
            "rating": pa.array(rows["half_stars"] / 2, mask=rows["half_stars"] == 0),
        }
    )


def _decimal(cents: NDArray[np.int64]) -> pa.Array:
    """Return prices as DECIMAL(10,2); the high half of a small positive 128-bit integer is zero."""
    halves = np.zeros((len(cents), 2), np.int64)
    halves[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(10, 2), len(cents), [None, pa.py_buffer(halves)])
