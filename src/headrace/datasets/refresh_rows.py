"""New and changed rows of TPC-H, within the domains that its specification gives them (section 4.2.3).

New rows are copies of others under new keys, so that they are as plausible as those. Values that queries look for
are drawn far more often than others: at a small scale hardly an answer would change otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.datasets.tpch import TPCH_SCHEMAS

Numbers = NDArray[np.int64]
Row = dict[str, Any]


def _day(text: str) -> int:
    return int(np.datetime64(text).astype(np.int64))


_FIRST_ORDER, _LAST_ORDER = _day("1992-01-01"), _day("1998-08-02")
_TODAY = _day("1995-06-17")  # what is shipped or received later is open
_NATIONS = 25
_NATIONS_SOUGHT = (2, 3, 6, 7, 20)  # Brazil, Canada, France, Germany, Saudi Arabia
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_MODES = ("AIR", "MAIL", "SHIP", "TRUCK")
_INSTRUCTIONS = ("DELIVER IN PERSON", "TAKE BACK RETURN")
_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_ORDER_COMMENTS = (
    "special packages among the final requests",
    "furiously regular ideas haggle",
    "special, no requests",
)
_SUPPLIER_COMMENTS = ("slyly bold Customer ideas among Complaints", "Customer Recommends", "quickly even deposits")
# What parts are looked for by: Q2 and Q_B; Q8, Q9 and Q20; Q17, Q19 and Q8; Q14, Q16 and Q19; Q16, Q19 and Q20; Q16.
_PARTS: tuple[Row, ...] = (
    {"p_type": "LARGE PLATED BRASS", "p_size": 15, "p_brand": "Brand#23"},
    {"p_type": "ECONOMY ANODIZED STEEL", "p_name": "forest green misty linen puff"},
    {"p_type": "ECONOMY ANODIZED STEEL", "p_brand": "Brand#23", "p_container": "MED BOX", "p_size": 5},
    {"p_type": "PROMO BRUSHED TIN", "p_brand": "Brand#12", "p_container": "SM BOX", "p_size": 3},
    {"p_name": "forest azure ghost lace tan", "p_brand": "Brand#34", "p_container": "LG BOX", "p_size": 9},
    {"p_type": "MEDIUM POLISHED STEEL", "p_size": 14},
)


def new_orders(
    orders: pa.Table,
    lineitem: pa.Table,
    keys: Numbers,
    customers: Numbers,
    bulky: float,
    random: np.random.Generator,
) -> tuple[pa.Table, pa.Table]:
    """Copy orders with their lineitems under new keys, with customers, dates, quantities and prices of their own.

    Parameters
    ----------
    lineitem : those of the orders, and no others.
    bulky : the share of orders each of whose lineitems has a large quantity.
    """
    old = orders["o_orderkey"].to_numpy()
    by_key = np.argsort(old)
    owner = by_key[np.searchsorted(old[by_key], lineitem["l_orderkey"].to_numpy())]
    dates = random.integers(_FIRST_ORDER, _LAST_ORDER + 1, len(keys))
    large = random.random(len(keys)) < bulky
    quantities = np.where(large[owner], random.integers(44, 51, len(owner)), random.integers(1, 51, len(owner)))
    items = _sold(lineitem, quantities)
    items = _shipped(items, dates[owner] + random.integers(1, 122, len(owner)), dates[owner], random)
    items = _with(items, l_orderkey=keys[owner])
    open_items = items["l_linestatus"].to_numpy(zero_copy_only=False) == "O"
    left_open, in_all = (np.bincount(owner[of], minlength=len(keys)) for of in (open_items, slice(None)))
    status = np.where(left_open == 0, "F", np.where(left_open == in_all, "O", "P"))
    totals = np.zeros(len(keys), np.int64)
    prices, taxes, discounts = (_cents(items[f"l_{name}"]) for name in ("extendedprice", "tax", "discount"))
    np.add.at(totals, owner, prices * (100 - discounts) * (100 + taxes) // 10_000)
    made = _with(
        orders,
        o_orderkey=keys,
        o_custkey=customers,
        o_orderstatus=status,
        o_totalprice=totals,
        o_orderdate=dates,
        o_orderpriority=random.choice(_PRIORITIES, len(keys)),
    )
    return made, items


def changed_orders(rows: pa.Table, customers: Numbers, random: np.random.Generator) -> pa.Table:
    """Give orders other dates, priorities, comments, and half of them another customer of those given."""
    count = rows.num_rows
    moved = rows["o_orderdate"].cast(pa.int32()).to_numpy() + random.integers(-90, 91, count)
    custkeys = rows["o_custkey"].to_numpy()
    return _with(
        rows,
        o_orderdate=np.clip(moved, _FIRST_ORDER, _LAST_ORDER),
        o_custkey=np.where(random.random(count) < 0.5, random.choice(customers, count), custkeys),
        o_orderstatus=random.choice(("F", "O", "P"), count),
        o_orderpriority=random.choice(_PRIORITIES, count),
        o_comment=random.choice(_ORDER_COMMENTS, count),
    )


def changed_lineitems(rows: pa.Table, random: np.random.Generator) -> pa.Table:
    """Give lineitems other quantities and dates, and have a third of them exchange what they are of."""
    count = rows.num_rows
    few, many, any_number = random.integers(1, 4, count), np.full(count, 50), random.integers(1, 51, count)
    quantities = np.choose(random.integers(0, 3, count), [few, many, any_number])
    shipped = rows["l_shipdate"].cast(pa.int32()).to_numpy().astype(np.int64)
    items = _shipped(_sold(rows, quantities), shipped, shipped - random.integers(1, 122, count), random)
    exchanged = np.arange(count)
    some = np.flatnonzero(random.random(count) < 1 / 3)
    exchanged[some] = random.permutation(some)
    return _with(
        items,
        l_partkey=rows["l_partkey"].to_numpy()[exchanged],
        l_suppkey=rows["l_suppkey"].to_numpy()[exchanged],
        l_shipmode=random.choice(_MODES, count),
        l_shipinstruct=random.choice(_INSTRUCTIONS, count),
    )


def renumbered(name: str, rows: pa.Table, *keys: Numbers) -> pa.Table:
    """Give rows other keys, and the names that go with them."""
    columns: dict[str, Any] = dict(zip(TPCH_SCHEMAS[name].key, keys, strict=True))
    if name in ("customer", "supplier"):
        columns[f"{name[0]}_name"] = [f"{name.capitalize()}#{key:09d}" for key in keys[0].tolist()]
    return _with(rows, **columns)


def changed(name: str, rows: pa.Table, random: np.random.Generator) -> pa.Table:
    """Return other versions of some rows of a small table: the keys stay; nations and regions exchange names."""
    if name in ("nation", "region"):
        column = f"{name[0]}_name"
        return _with(rows, **{column: rows[column].to_pylist()[::-1]})
    change = _CHANGES[name]
    return pa.Table.from_pylist([row | change(row, random) for row in rows.to_pylist()], rows.schema)


def _customer(row: Row, random: np.random.Generator) -> Row:
    return _moved("c", row, random) | {"c_mktsegment": str(random.choice(_SEGMENTS))}


def _supplier(row: Row, random: np.random.Generator) -> Row:
    return _moved("s", row, random) | {"s_comment": str(random.choice(_SUPPLIER_COMMENTS))}


def _moved(prefix: str, row: Row, random: np.random.Generator) -> Row:
    """Change the account balance of someone who moves to another nation half of the time."""
    balance = {f"{prefix}_acctbal": _price(random, -999_99, 9_999_99)}
    if random.random() < 0.5:
        return balance
    nation = int(random.integers(0, _NATIONS) if random.random() < 0.5 else random.choice(_NATIONS_SOUGHT))
    phone = f"{nation + 10}{row[f'{prefix}_phone'][2:]}"  # a telephone number begins with that of its nation
    return balance | {f"{prefix}_nationkey": nation, f"{prefix}_phone": phone}


def _part(row: Row, random: np.random.Generator) -> Row:
    """Make a part one that a query looks for, or any other one."""
    brand = f"Brand#{random.integers(1, 6)}{random.integers(1, 6)}"
    new: Row = {
        "p_brand": brand,
        "p_size": int(random.integers(1, 51)),
        "p_retailprice": _price(random, 900_00, 2_098_99),
    }
    if random.random() < 2 / 3:
        new |= _PARTS[random.integers(0, len(_PARTS))]
    return new | {"p_mfgr": f"Manufacturer#{new['p_brand'][-2]}"}


def _partsupp(row: Row, random: np.random.Generator) -> Row:
    """Change cost and quantity: half of the time to round costs, which tie, and to quantities that orders exceed."""
    if random.random() < 0.5:
        return {"ps_availqty": int(random.integers(1, 100)), "ps_supplycost": Decimal(int(random.integers(1, 11)))}
    return {"ps_availqty": int(random.integers(1, 10_000)), "ps_supplycost": _price(random, 1_00, 1_000_00)}


_CHANGES: dict[str, Callable[[Row, np.random.Generator], Row]] = {
    "customer": _customer,
    "supplier": _supplier,
    "part": _part,
    "partsupp": _partsupp,
}


def _price(random: np.random.Generator, least: int, most: int) -> Decimal:
    return Decimal(int(random.integers(least, most + 1))).scaleb(-2)


def _sold(items: pa.Table, quantities: Numbers) -> pa.Table:
    """Change the quantities of lineitems; a piece costs what it did."""
    piece = _cents(items["l_extendedprice"]) * 100 // _cents(items["l_quantity"])
    return _with(items, l_quantity=100 * quantities, l_extendedprice=piece * quantities)


def _shipped(items: pa.Table, shipped: Numbers, ordered: Numbers, random: np.random.Generator) -> pa.Table:
    """Draw the other dates of lineitems, and what follows from them."""
    count = len(shipped)
    received = shipped + random.integers(1, 31, count)
    return _with(
        items,
        l_shipdate=shipped,
        l_commitdate=ordered + random.integers(30, 91, count),
        l_receiptdate=received,
        l_returnflag=np.where(received > _TODAY, "N", random.choice(("A", "R"), count)),
        l_linestatus=np.where(shipped > _TODAY, "O", "F"),
    )


def _with(rows: pa.Table, **columns: Any) -> pa.Table:
    """Replace columns: dates are given in days, and decimals in hundredths."""
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        column = rows.schema.field(at)
        rows = rows.set_column(at, column, _arrow(values, column.type))
    return rows


def _arrow(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pc.multiply(pa.array(values, pa.int64()).cast(pa.decimal128(19)), Decimal("0.01")).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(np.asarray(values, np.int32)).cast(kind)
    return pa.array(values if isinstance(values, list) else np.asarray(values).tolist(), kind)


def _cents(column: pa.ChunkedArray) -> Numbers:
    cents: Numbers = pc.multiply(column, Decimal(100)).cast(pa.int64()).to_numpy()
    return cents
