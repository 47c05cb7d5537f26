"""The Star Schema Benchmark with duplicated dimensions, which make its joins on keys joins of many to many.

Scale is SSB's scale factor: about 6,000,000 lineorders, 30,000 customers, 2,000 suppliers and 200,000 parts at 1, and
2,556 days at any. With F-IVM on Flink's sizes, scale 2 and 2 copies of each dimension row, 12,900,000 rows join to
192,000,000; scale 0.77 makes 5,000,000 rows. Of SSB's 54 attributes 37 are features or joined on, as there: texts
are coded as numbers, and those that tell rows apart (names, addresses, telephones) are left out.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.dataset import Columns, Dataset, TableSpec, check_duplicates, copies

ORDERS = 1_500_000
CUSTOMERS = 30_000
SUPPLIERS = 2_000
PARTS = 200_000
DAYS = 2_556
_FIRST_DAY = np.datetime64("1992-01-01")
_LAST_ORDER = 2_405  # 1998-08-02, as dbgen has it: what is ordered then arrives within the calendar
_JOIN = ("custkey", "suppkey", "partkey", "orderdate")


def duplicated_ssb(duplicates: int = 2) -> Dataset:
    """Return SSB with so many copies of each row of customer, supplier, part and dates."""
    check_duplicates(duplicates)

    def make(scale: float, random: np.random.Generator) -> dict[str, Columns]:
        orders, customers, suppliers = (max(2, round(full * scale)) for full in (ORDERS, CUSTOMERS, SUPPLIERS))
        # Parts grow with the logarithm, as in ssb-dbgen.
        parts = max(2, round(PARTS * (1 + math.floor(math.log2(scale)) if scale >= 1 else scale)))
        dimensions = {
            "customer": _places("c", "custkey", customers, random) | {"c_mktsegment": random.integers(0, 5, customers)},
            "supplier": _places("s", "suppkey", suppliers, random),
            "part": _part(parts, random),
            "dates": _dates(),
        }
        facts = _lineorder(orders, customers, suppliers, parts, random)
        return {"lineorder": facts} | {name: copies(columns, duplicates) for name, columns in dimensions.items()}

    def key(column: str) -> tuple[str, ...]:
        return (column,) if duplicates == 1 else ()

    return Dataset(
        name="ssb",
        tables=(
            # The order key is no feature and not joined on; it is there for lineorder to have a key.
            TableSpec.with_features(
                "lineorder",
                "lo_orderkey BIGINT, lo_linenumber INT, custkey BIGINT, partkey BIGINT, suppkey BIGINT, "
                "orderdate BIGINT, lo_orderpriority INT, lo_shippriority INT, lo_quantity DOUBLE, "
                "lo_extendedprice DOUBLE, lo_ordtotalprice DOUBLE, lo_discount DOUBLE, lo_revenue DOUBLE, "
                "lo_supplycost DOUBLE, lo_tax DOUBLE, lo_commitdate INT, lo_shipmode INT",
                apart=(*_JOIN, "lo_orderkey"),
                key=("lo_orderkey", "lo_linenumber"),
            ),
            TableSpec.with_features(
                "customer",
                "custkey BIGINT, c_city INT, c_nation INT, c_region INT, c_mktsegment INT",
                apart=_JOIN,
                key=key("custkey"),
            ),
            TableSpec.with_features(
                "supplier", "suppkey BIGINT, s_city INT, s_nation INT, s_region INT", apart=_JOIN, key=key("suppkey")
            ),
            TableSpec.with_features(
                "part",
                "partkey BIGINT, p_mfgr INT, p_category INT, p_brand1 INT, p_color INT, p_type INT, p_size INT, "
                "p_container INT",
                apart=_JOIN,
                key=key("partkey"),
            ),
            TableSpec.with_features(
                "dates",
                "orderdate BIGINT, d_year INT, d_monthnuminyear INT, d_weeknuminyear INT, d_daynuminmonth INT, "
                "d_daynuminweek INT, d_sellingseason INT, d_holidayfl INT",
                apart=_JOIN,
                key=key("orderdate"),
            ),
        ),
        label="lo_revenue",
        # A row of lineorder hardly shares its keys with another, so summing on the way up would make state, not save
        # it: everything is joined at once, at the top.
        order="""\
orderdate: dates
  custkey !stop: customer
    partkey !stop: part
      suppkey !stop: lineorder !stop, supplier""",
        about=f"the Star Schema Benchmark, each dimension row {duplicates} times: 5 tables",
        make=make,
    )


def _lineorder(orders: int, customers: int, suppliers: int, parts: int, random: np.random.Generator) -> Columns:
    lines = random.integers(1, 8, orders)
    order = np.repeat(np.arange(orders), lines)
    size = len(order)
    number = 1 + np.arange(size) - (np.cumsum(lines) - lines)[order]
    # A third of the customers never order, as in TPC-H.
    customer = random.integers(0, customers - customers // 3, orders)
    custkey = 1 + customer + customer // 2
    day = random.integers(0, _LAST_ORDER + 1, orders)
    partkey = random.integers(1, parts + 1, size)
    quantity = random.integers(1, 51, size)
    discount, tax = random.integers(0, 11, size), random.integers(0, 9, size)
    price = _retail_price(partkey)
    extended = quantity * price
    revenue = extended * (100 - discount) / 100
    total = np.bincount(order, revenue * (100 + tax) / 100, minlength=orders)
    return {
        "lo_orderkey": order + 1,
        "lo_linenumber": number,
        "custkey": custkey[order],
        "partkey": partkey,
        "suppkey": random.integers(1, suppliers + 1, size),
        "orderdate": _date_keys()[day][order],
        "lo_orderpriority": random.integers(0, 5, orders)[order],
        "lo_shippriority": np.zeros(size, np.int32),
        "lo_quantity": quantity,
        "lo_extendedprice": extended,
        "lo_ordtotalprice": total.round(2)[order],
        "lo_discount": discount,
        "lo_revenue": revenue.round(2),
        "lo_supplycost": (0.6 * price).round(2),
        "lo_tax": tax,
        "lo_commitdate": day[order] + random.integers(30, 91, size),
        "lo_shipmode": random.integers(0, 7, size),
    }


def _retail_price(partkey: NDArray[np.int64]) -> NDArray[np.float64]:
    """Price of a part, from its key alone: TPC-H, clause 4.2.3."""
    cents = 90_000 + (partkey // 10) % 20_001 + 100 * (partkey % 1_000)
    return np.asarray(cents / 100)


def _places(prefix: str, key: str, size: int, random: np.random.Generator) -> Columns:
    """Rows with a city; a nation has ten cities, and a region five nations."""
    city = random.integers(0, 250, size)
    return {
        key: np.arange(1, size + 1),
        f"{prefix}_city": city,
        f"{prefix}_nation": city // 10,
        f"{prefix}_region": city // 50,
    }


def _part(size: int, random: np.random.Generator) -> Columns:
    brand = random.integers(0, 1_000, size)  # 40 in each of 25 categories, of which each maker has 5
    return {
        "partkey": np.arange(1, size + 1),
        "p_mfgr": brand // 200,
        "p_category": brand // 40,
        "p_brand1": brand,
        "p_color": random.integers(0, 92, size),
        "p_type": random.integers(0, 150, size),
        "p_size": random.integers(1, 51, size),
        "p_container": random.integers(0, 40, size),
    }


def _calendar() -> NDArray[np.datetime64]:
    return _FIRST_DAY + np.arange(DAYS)


def _date_keys() -> NDArray[np.int64]:
    """Dates as SSB writes them: 19920101."""
    days = _calendar()
    months = days.astype("M8[M]")
    year = days.astype("M8[Y]").astype(np.int64) + 1970
    return np.asarray(
        year * 10_000 + (months.astype(np.int64) % 12 + 1) * 100 + (days - months).astype(np.int64) + 1, np.int64
    )


def _dates() -> Columns:
    days = _calendar()
    key = _date_keys()
    month = key // 100 % 100
    day_of_year = (days - days.astype("M8[Y]")).astype(np.int64)
    # Winter, spring, summer, autumn, and Christmas apart.
    season = np.where((month == 12) & (key % 100 <= 25), 4, month % 12 // 3)
    return {
        "orderdate": key,
        "d_year": key // 10_000,
        "d_monthnuminyear": month,
        "d_weeknuminyear": day_of_year // 7 + 1,
        "d_daynuminmonth": key % 100,
        "d_daynuminweek": (days.astype(np.int64) + 4) % 7 + 1,  # 1970-01-01 was a Thursday; Sunday is day 1
        "d_sellingseason": season,
        "d_holidayfl": np.isin(key % 10_000, [101, 214, 501, 704, 1031, 1224, 1225]),
    }


SSB = duplicated_ssb()
