"""Favorita: sales of a chain of grocers with the days, shops and items they belong to.

Scale 1 is 1,000,000 sales over 1,700 days, 54 stores and 4,000 items; above it only sales grow, below it there are
fewer days and items. Every category (a city, a kind of holiday, a family of items) is an INT code, since features are
numbers; holiday has exactly one row per date, type 0 standing for an ordinary day.
"""

from __future__ import annotations

import numpy as np

from headrace.datasets.dataset import Columns, Dataset, TableSpec, shrunk, skewed

SALES = 1_000_000
DAYS = 1_700
STORES = 54
ITEMS = 4_000
_JOIN = ("date", "store", "item")


def _make(scale: float, random: np.random.Generator) -> dict[str, Columns]:
    rows = max(1, round(SALES * scale))
    days = shrunk(DAYS, scale, least=10)
    items = shrunk(ITEMS, scale, least=50, power=0.5)
    stores: Columns = {
        "store": np.arange(STORES),
        "city": random.integers(0, 22, STORES),
        "state": random.integers(0, 16, STORES),
        "store_type": random.integers(0, 5, STORES),
        "cluster": random.integers(0, 17, STORES),
    }
    item: Columns = {
        "item": np.arange(items),
        "family": random.integers(0, 33, items),
        "itemclass": random.integers(0, 337, items),
        "perishable": random.random(items) < 0.25,
    }
    date = np.arange(days)
    oil: Columns = {"date": date, "oilprize": np.maximum(20, 95 + np.cumsum(random.normal(-0.03, 1, days)))}
    kind = np.where(random.random(days) < 0.8, 0, random.integers(1, 7, days))
    holiday: Columns = {
        "date": date,
        "holiday_type": kind,
        "locale": np.where(kind == 0, 0, random.integers(1, 4, days)),
        "locale_id": np.where(kind == 0, 0, random.integers(1, 25, days)),
        "transferred": (kind > 0) & (random.random(days) < 0.05),
    }
    # A row for every day and store, so that no sale is without one.
    size_of_store = random.gamma(4, 400, STORES)
    weekly = 1 + 0.2 * np.sin(2 * np.pi * date / 7)
    visitors = (size_of_store * weekly[:, None] * random.normal(1, 0.1, (days, STORES))).ravel()
    transactions: Columns = {
        "date": np.repeat(date, STORES),
        "store": np.tile(np.arange(STORES), days),
        "transactions": np.maximum(1, visitors.round()),
    }

    day, store = random.integers(0, days, rows), random.permutation(STORES)[skewed(random, STORES, rows, 1.4)]
    thing = random.permutation(items)[skewed(random, items, rows)]
    promoted = random.random(rows) < 0.1
    units = (
        2
        + 0.004 * transactions["transactions"][day * STORES + store]
        + 0.03 * oil["oilprize"][day]
        + (1.5 * (kind > 0))[day]
        + (0.1 * stores["cluster"])[store]
        + (0.2 * item["family"] + 3 * item["perishable"])[thing]
        + 4 * promoted
        + random.normal(0, 3, rows)
    )
    sales: Columns = {
        "date": day,
        "store": store,
        "item": thing,
        "unit_sales": units.round(3),
        "onpromotion": promoted,
    }
    return {
        "sales": sales,
        "oil": oil,
        "holiday": holiday,
        "transactions": transactions,
        "stores": stores,
        "items": item,
    }


FAVORITA = Dataset(
    name="favorita",
    tables=(
        TableSpec.with_features(
            "sales", "date BIGINT, store BIGINT, item BIGINT, unit_sales DOUBLE, onpromotion INT", apart=_JOIN
        ),
        TableSpec.with_features("oil", "date BIGINT, oilprize DOUBLE", apart=_JOIN, key=("date",)),
        TableSpec.with_features(
            "holiday",
            "date BIGINT, holiday_type INT, locale INT, locale_id INT, transferred INT",
            apart=_JOIN,
            key=("date",),
        ),
        TableSpec.with_features(
            "transactions",
            "date BIGINT, store BIGINT, transactions DOUBLE",
            apart=_JOIN,
            key=("date", "store"),
        ),
        TableSpec.with_features(
            "stores", "store BIGINT, city INT, state INT, store_type INT, cluster INT", apart=_JOIN, key=("store",)
        ),
        TableSpec.with_features(
            "items", "item BIGINT, family INT, itemclass INT, perishable INT", apart=_JOIN, key=("item",)
        ),
    ),
    label="unit_sales",
    order="""\
date: oil, holiday
  store: transactions, stores
    item: sales, items""",
    about="sales of a chain of grocers: 6 tables on date, store and item",
    make=_make,
    categorical=(
        *("onpromotion", "holiday_type", "locale", "locale_id", "transferred", "city", "state", "store_type"),
        *("cluster", "family", "itemclass", "perishable"),
    ),
)
