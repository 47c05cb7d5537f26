"""A window of lineitems that slides over TPC-H, as the papers on foreign-key joins measure updates.

Rows come in the order of their keys and leave in the same order, first in, first out, so after a while every second
update is a deletion and the state stays as large as the window. The whole sequence is one array of signed row numbers,
made without a loop over rows: scale 1 takes a few seconds, and a batch is a gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.datasets.batches import DIFF
from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.errors import SchemaError

Numbers = NDArray[np.int64]

POSITION = "__position"
"""Where an update stands in its sequence: the column that `Updates.batches` adds on request."""

_FACTS = ("orders", "lineitem")
_MOST_LATE = 1_000
_LEAST_LATE = 8


@dataclass(frozen=True)
class Updates:
    """A sequence of single-row updates over some tables.

    Attributes
    ----------
    tables : the rows, by table.
    sequence : one number per update. The rows of all tables are numbered through from 1, table after table; the number
        of a row inserts it, and its negative deletes it.
    """

    tables: dict[str, pa.Table]
    sequence: NDArray[np.signedinteger]

    @property
    def total(self) -> int:
        """The number of updates."""
        return len(self.sequence)

    def __len__(self) -> int:
        return self.total

    def first(self, count: int) -> Updates:
        """Return the first `count` updates."""
        return Updates(self.tables, self.sequence[:count])

    def rows_left(self) -> dict[str, pa.Table]:
        """Return the rows that are there after all updates."""
        ends = np.cumsum([0, *(table.num_rows for table in self.tables.values())])
        net = np.zeros(ends[-1], np.int64)
        np.add.at(net, np.abs(self.sequence).astype(np.int64) - 1, np.sign(self.sequence))
        return {
            name: table.take(pa.array(np.flatnonzero(net[start:end])))
            for (name, table), start, end in zip(self.tables.items(), ends[:-1], ends[1:], strict=True)
        }

    def batches(self, size: int, *, first: int = 0, positions: bool = False) -> Iterator[dict[str, pa.Table]]:
        """Yield the updates as change batches of `size` rows; the last one has what is left.

        The rows of a table stand in the order of the sequence, with `__diff` behind them; a row that comes and goes
        within a batch is there twice. Tables without a change in a batch are not in it.

        Parameters
        ----------
        first : number of the first batch to make; the ones before it cost nothing.
        positions : add a column `__position` with the place of each update in the sequence, from 0. It says how the
            updates of different tables follow one another; `Engine.apply` does not take it.
        """
        if size < 1:
            raise SchemaError(f"a batch of {size} rows holds nothing", way_out="give a batch of 1 row or more")
        return (self._batch(start, size, positions) for start in range(first * size, self.total, size))

    def _batch(self, start: int, size: int, positions: bool) -> dict[str, pa.Table]:
        updates = self.sequence[start : start + size].astype(np.int64)
        rows, diff = np.abs(updates) - 1, np.sign(updates)
        made, offset = {}, 0
        for name, table in self.tables.items():
            mine = np.flatnonzero((rows >= offset) & (rows < offset + table.num_rows))
            if len(mine):
                changes = table.take(pa.array(rows[mine] - offset)).append_column(DIFF, pa.array(diff[mine]))
                made[name] = changes.append_column(POSITION, pa.array(mine + start)) if positions else changes
            offset += table.num_rows
        return made


def fifo_window(
    tables: Mapping[str, pa.Table],
    batch: int,
    window: int | None,
    *,
    late: bool = False,
    shuffle: int | None = None,
    drain: bool = False,
) -> Iterator[dict[str, pa.Table]]:
    """Yield the updates of `fifo_updates` as change batches of `batch` rows."""
    return fifo_updates(tables, window, late=late, shuffle=shuffle, drain=drain).batches(batch)


def fifo_updates(
    tables: Mapping[str, pa.Table],
    window: int | None = None,
    *,
    late: bool = False,
    shuffle: int | None = None,
    drain: bool = False,
) -> Updates:
    """Slide a window over plain tables of TPC-H.

    First all dimensions are inserted, each after those that it refers to. Then the orders come in the order of their
    table, each followed by its lineitems. Whenever there are more than `window` lineitems, the oldest is deleted, and
    an order right after the last of its lineitems.

    Parameters
    ----------
    tables : lineitem, orders unless you do without, and any others of `TPCH_SCHEMAS`; columns that are not needed may
        be left out, but l_orderkey and o_orderkey tell which lineitems an order has.
    window : how many lineitems stay; None deletes none.
    late : an order comes after its lineitems, which refer to nothing until then.
    shuffle : a seed. Every order and lineitem is held back by up to 1,000 places at random (up to half a window, if
        that is less), so that some refer to nothing for a while. An order that comes after the last of its lineitems
        has gone is deleted at once.
    drain : delete all that is left at the end: lineitems and their orders as before, then the dimensions, those that
        refer to others first.

    >>> tables = {"orders": pa.table({"o_orderkey": [1, 2]}), "lineitem": pa.table({"l_orderkey": [1, 1, 2]})}
    >>> fifo_updates(tables, window=2).sequence.tolist()  # 1 and 2 are the orders, 3 to 5 the lineitems
    [1, 3, 4, 2, 5, -3]
    >>> fifo_updates(tables, window=1, drain=True).sequence.tolist()
    [1, 3, 4, -3, 2, 5, -4, -1, -5, -2]
    """
    _check(tables, window)
    used = {name: tables[name].combine_chunks() for name in TPCH_SCHEMAS if name in tables}
    dimensions = [table.num_rows for name, table in used.items() if name not in _FACTS]
    width = np.int32 if sum(table.num_rows for table in used.values()) < np.iinfo(np.int32).max else np.int64
    ends = np.cumsum([0, *dimensions])
    facts = _facts(used, window, late, shuffle, drain)
    # Dimensions are numbered before facts, as they stand in `used`.
    parts = [np.arange(1, ends[-1] + 1), facts + np.sign(facts) * ends[-1]]
    if drain:
        parts += [-np.arange(start + 1, end + 1) for start, end in zip(ends[-2::-1], ends[:0:-1], strict=True)]
    return Updates(used, np.concatenate([part.astype(width) for part in parts]))


def _check(tables: Mapping[str, pa.Table], window: int | None) -> None:
    unknown = [name for name in tables if name not in TPCH_SCHEMAS]
    if unknown:
        raise SchemaError(
            f"{unknown[0]!r} is not a table of TPC-H", way_out=f"give tables of {', '.join(TPCH_SCHEMAS)}"
        )
    if "lineitem" not in tables:
        raise SchemaError("there is no table 'lineitem' to slide a window over", way_out="add lineitem to the tables")
    if window is not None and window < 1:
        raise SchemaError(
            f"a window of {window} lineitems holds nothing", way_out="give 1 or more, or None to delete nothing"
        )
    for name, column in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
        if "orders" in tables and column not in tables[name].column_names:
            raise SchemaError(
                f"table {name!r} has no column {column!r}, which says what belongs together",
                way_out=f"add {column}, or leave orders out",
            )


def _facts(tables: Mapping[str, pa.Table], window: int | None, late: bool, shuffle: int | None, drain: bool) -> Numbers:
    """Return the updates of orders (numbered from 1) and lineitems (numbered after them).

    Every insertion has a slot of its own, and what it causes comes right behind it, in this order: the deletion of a
    lineitem, the deletion of an order. So all places are known at once, and a scatter does for a sort.
    """
    items = tables["lineitem"].num_rows
    orders = tables["orders"].num_rows if "orders" in tables else 0
    owner = _owners(tables) if "orders" in tables else np.zeros(items, np.int64)
    order_slots, item_slots = _arrivals(owner, orders, late)
    if shuffle is not None:
        slots = _held_back(np.concatenate([order_slots, item_slots]), window, shuffle)
        order_slots, item_slots = slots[:orders], slots[orders:]
    arrived = np.argsort(item_slots, kind="stable")  # lineitems, the oldest first
    inserts = orders + items
    # A lineitem goes when the one comes that is a window later; those left go, if at all, in slots behind the last one.
    kept = items if window is None else min(window, items)
    item_ends = np.empty(items, np.int64)
    item_ends[arrived] = np.concatenate([item_slots[arrived[kept:]], inserts + np.arange(kept)])
    order_ends = _order_ends(order_slots, item_ends, owner, inserts + kept)

    places = np.zeros(3 * (inserts + kept + orders if drain else inserts), np.int64)
    numbers = np.arange(1, inserts + 1)
    places[3 * np.concatenate([order_slots, item_slots])] = numbers
    for behind, slots, gone in ((1, item_ends, numbers[orders:]), (2, order_ends, numbers[:orders])):
        at = 3 * slots + behind
        there = at < len(places)
        places[at[there]] = -gone[there]
    updates: Numbers = places[places != 0]
    return updates


def _owners(tables: Mapping[str, pa.Table]) -> Numbers:
    """Return the row number of the order of each lineitem."""
    keys, wanted = tables["orders"]["o_orderkey"].to_numpy(), tables["lineitem"]["l_orderkey"].to_numpy()
    by_key = np.argsort(keys, kind="stable")
    in_order = keys[by_key]
    if (in_order[1:] == in_order[:-1]).any():
        raise SchemaError("o_orderkey repeats in orders", way_out="give each order once")
    at = np.searchsorted(in_order, wanted)
    missing = at == len(keys)
    at[missing] = 0
    missing |= (in_order[at] if len(keys) else at) != wanted
    if missing.any():
        raise SchemaError(
            f"lineitem has l_orderkey {wanted[missing][0]}, which no order has",
            way_out="give all orders that lineitem refers to, or leave orders out",
        )
    owners: Numbers = by_key[at]
    return owners


def _arrivals(owner: Numbers, orders: int, late: bool) -> tuple[Numbers, Numbers]:
    """Return the slots in which orders and lineitems are inserted: an order, its lineitems, the next order."""
    counts = np.bincount(owner, minlength=orders)[:orders]
    item_rank = np.empty(len(owner), np.int64)
    item_rank[np.argsort(owner, kind="stable")] = np.arange(len(owner))
    before = np.cumsum(counts) - (0 if late else counts)
    own_orders = (owner if late else owner + 1) if orders else 0
    return np.arange(orders) + before, item_rank + own_orders


def _held_back(slots: Numbers, window: int | None, seed: int) -> Numbers:
    most = _MOST_LATE if window is None else max(_LEAST_LATE, min(_MOST_LATE, window // 2))
    moved = slots + np.random.default_rng(seed).uniform(0, most, len(slots))
    again = np.empty(len(slots), np.int64)
    again[np.argsort(moved, kind="stable")] = np.arange(len(slots))
    return again


def _order_ends(order_slots: Numbers, item_ends: Numbers, owner: Numbers, after: int) -> Numbers:
    """Return the slots behind which orders are deleted; those without lineitems wait for the end."""
    last = np.full(len(order_slots), -1, np.int64)
    if len(order_slots):
        np.maximum.at(last, owner, item_ends)
    ends = np.maximum(last, order_slots)
    without = last < 0
    ends[without] = after + np.arange(np.count_nonzero(without))
    return ends
