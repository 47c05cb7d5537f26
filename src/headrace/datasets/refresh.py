"""A stream of steps over the eight tables of TPC-H: its refresh functions, and changes of everything else.

TPC-H itself only ever inserts orders (RF1) and deletes orders (RF2), each with their lineitems. Views over all tables
meet more than that: rows of every table come, leave, come back and change, whatever refers to them. A stream is a
function of its tables, its length and a seed, and deletes only rows that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.datasets.batches import DIFF
from headrace.datasets.refresh_rows import changed, changed_lineitems, changed_orders, new_orders, renumbered
from headrace.datasets.refresh_state import Numbers, State, key_numbers
from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.errors import SchemaError

_FACTS = ("orders", "lineitem")
_DIMENSIONS = ("customer", "supplier", "part", "partsupp")
_WATCHED = ("BRAZIL", "CANADA", "FRANCE", "GERMANY", "SAUDI ARABIA")  # the nations that queries name
_BULKY = 0.2  # the share of new orders that are large enough for Q18; in nature one in 25,000 is
_EARLY = 0.1  # the share of new orders that come before their customer


def refresh_steps(
    tables: Mapping[str, pa.Table], steps: int, *, share: float = 0.001, tables_changed: str = "all", seed: int = 0
) -> Iterator[dict[str, pa.Table]]:
    """Yield steps of changes to TPC-H's plain tables: rows with `__diff` by table, deletions first.

    Parameters
    ----------
    tables : the rows to begin with, as `tpch_tables` makes them.
    share : how much of a table one kind of change touches, at least a row.
    tables_changed : "facts" has RF1 and RF2 in every step, and nothing else. "all" has, in turn, a step of RF1, one of
        RF2, one in which customers, suppliers, parts and what they supply leave, come, come back and change, one in
        which orders and lineitems do, and one of all of this in which nations and regions change as well. References
        dangle then: a customer leaves and its orders stay, an order comes before its customer. What the queries of
        TPC-H look for comes up often enough for their answers to change at small scales.

    An update is a deletion and an insertion of one key. No step changes a key twice.
    """
    _check(tables, steps, share, tables_changed)
    names = _FACTS if tables_changed == "facts" else tuple(TPCH_SCHEMAS)
    state = State({name: tables[name] for name in names}, share, np.random.default_rng(seed))
    return _steps(state, steps, _TURNS[tables_changed])


def undo_steps(steps: Sequence[Mapping[str, pa.Table]]) -> Iterator[dict[str, pa.Table]]:
    """Yield the steps that undo others: their changes with the opposite sign, the last step first."""
    for changes in reversed(steps):
        yield {
            name: rows.set_column(rows.schema.get_field_index(DIFF), DIFF, pc.negate(rows[DIFF]))
            for name, rows in changes.items()
        }


def rows_after(tables: Mapping[str, pa.Table], steps: Iterable[Mapping[str, pa.Table]]) -> dict[str, pa.Table]:
    """Return the rows that are there after some steps; rows that stay keep their order, new ones come last."""
    rows = dict(tables)
    for changes in steps:
        rows |= {name: _after(name, rows[name], given) for name, given in changes.items()}
    return rows


def _after(name: str, rows: pa.Table, changes: pa.Table) -> pa.Table:
    diff, plain = changes[DIFF].to_numpy(), changes.drop_columns([DIFF])
    left = key_numbers(name, plain.filter(pa.array(diff < 0)))
    stays = ~np.isin(key_numbers(name, rows), left)
    if np.count_nonzero(stays) + len(left) != rows.num_rows:
        raise SchemaError(
            f"a step deletes rows of {name!r} that are not there", way_out="give the rows from just before the step"
        )
    came = plain.filter(pa.array(diff > 0))
    return pa.concat_tables([rows.filter(pa.array(stays)), came])


Change = Callable[[State], None]


def _steps(state: State, steps: int, turns: Sequence[Sequence[Change]]) -> Iterator[dict[str, pa.Table]]:
    for number in range(steps):
        for change in turns[number % len(turns)]:
            change(state)
        yield state.finish()


def _new_orders(state: State, bulky: float = 0.0, early: float = 0.0) -> None:
    """Insert orders with their lineitems (RF1), a share of them bulky, and a share before their customer."""
    like = state.rows["orders"].take(state.draw("orders"))
    lineitems = state.rows["lineitem"].take(state.lineitems_of(like["o_orderkey"].to_numpy()))
    customers = state.random.permutation(like["o_custkey"].to_numpy())
    if early:
        early_ones = state.random.random(len(customers)) < early
        customers[early_ones] = _keys_to_come(state, "customer", int(early_ones.sum()))
    keys = state.order_keys(like.num_rows)
    orders, lineitems = new_orders(like, lineitems, keys, customers, bulky, state.random)
    state.come("orders", orders)
    state.come("lineitem", lineitems)


def _old_orders(state: State) -> None:
    """Delete the oldest orders with their lineitems (RF2)."""
    oldest = np.flatnonzero(state.rows["orders"].there)[: state.counts["orders"]]
    orders = state.leave("orders", oldest)
    state.leave("lineitem", state.lineitems_of(orders["o_orderkey"].to_numpy()))


def _dimensions(state: State) -> None:
    """Have rows change, leave, come back and come, whatever refers to them."""
    for name in _DIMENSIONS:
        like = state.rows[name].take(state.draw(name))
        state.come(name, changed(name, state.back(name), state.random))
        state.come(name, changed(name, state.leave(name, state.draw(name)), state.random))
        state.leave(name, state.draw(name), for_a_while=True)
        new = _new_pairs(state, like) if name == "partsupp" else _new_members(state, name, like)
        state.come(name, changed(name, new, state.random))


def _new_members(state: State, name: str, like: pa.Table) -> pa.Table:
    last = int(state.rows[name].keys.max(initial=0))
    return renumbered(name, like, np.arange(last + 1, last + 1 + like.num_rows))


def _new_pairs(state: State, like: pa.Table) -> pa.Table:
    """Have other suppliers supply some parts, of which one in ten is yet to come."""
    rows = like.num_rows
    parts, suppliers = (state.random.choice(state.rows[name].keys, rows) for name in ("part", "supplier"))
    early = state.random.random(rows) < _EARLY
    parts[early] = _keys_to_come(state, "part", int(early.sum()))
    pairs = parts << 32 | suppliers
    new = np.setdiff1d(pairs, state.rows["partsupp"].keys)
    return renumbered("partsupp", like.slice(0, len(new)), new >> 32, new & 0xFFFFFFFF)


def _keys_to_come(state: State, name: str, count: int) -> Numbers:
    """Draw keys of rows that come with the new ones of the next two times."""
    last = int(state.rows[name].keys.max(initial=0))
    return last + 1 + state.random.integers(0, 2 * state.counts[name], count)


def _facts(state: State) -> None:
    """Have orders and lineitems change, leave without what belongs to them, and come back."""
    for name in _FACTS:
        state.come(name, state.back(name))
        state.leave(name, state.draw(name), for_a_while=True)
    customers = np.append(state.rows["customer"].keys, _keys_to_come(state, "customer", 1))
    orders = state.leave("orders", state.draw("orders"))
    state.come("orders", changed_orders(orders, customers, state.random))
    state.come("lineitem", changed_lineitems(state.leave("lineitem", state.draw("lineitem")), state.random))
    left = state.leave("orders", state.draw("orders"))
    state.leave("lineitem", state.lineitems_of(left["o_orderkey"].to_numpy()))


def _nations(state: State) -> None:
    """In turn: nations and regions exchange names; a nation leaves; it is back, and a region leaves; all are back."""
    turn, state.turn = state.turn % 4, state.turn + 1
    for name in ("nation", "region"):
        state.come(name, state.back(name, every=True))
    if turn == 0:
        for name in ("nation", "region"):
            two = _two(state, name)
            state.come(name, changed(name, state.leave(name, two), state.random))
    elif turn == 1:
        state.leave("nation", _two(state, "nation")[:1], for_a_while=True)
    elif turn == 2:
        state.leave("region", state.draw("region", 1), for_a_while=True)


def _two(state: State, name: str) -> Numbers:
    """Draw two rows, of nations one that queries name first."""
    numbers = state.draw(name, len(state.rows[name].there))
    mixed = state.random.permutation(numbers)
    if name == "region":
        return mixed[:2]
    rows = state.rows[name].take(numbers)
    watched = numbers[np.isin(np.array(rows["n_name"].to_pylist()), _WATCHED)]
    first = state.random.permutation(watched)[:1]
    return np.concatenate([first, np.setdiff1d(mixed, first, assume_unique=True)])[:2]


_NOTABLE_ORDERS = partial(_new_orders, bulky=_BULKY, early=_EARLY)

_TURNS: dict[str, tuple[tuple[Change, ...], ...]] = {
    "facts": ((_new_orders, _old_orders),),
    "all": (
        (_NOTABLE_ORDERS,),
        (_old_orders,),
        (_dimensions,),
        (_facts,),
        (_NOTABLE_ORDERS, _old_orders, _dimensions, _facts, _nations),
    ),
}


def _check(tables: Mapping[str, pa.Table], steps: int, share: float, tables_changed: str) -> None:
    if tables_changed not in _TURNS:
        known = " or ".join(map(repr, _TURNS))
        raise SchemaError(f"tables_changed={tables_changed!r} is not known", way_out=f"use {known}")
    if steps < 0:
        raise SchemaError(f"a stream of {steps} steps cannot be", way_out="give 0 steps or more")
    if not 0 < share <= 0.1:
        raise SchemaError(
            f"a step cannot change the share {share} of a table in every way",
            way_out="give a share above 0 and up to 0.1",
        )
    for name in _FACTS if tables_changed == "facts" else TPCH_SCHEMAS:
        if name not in tables or not tables[name].schema.equals(TPCH_SCHEMAS[name].schema):
            wrong = "is not as TPCH_SCHEMAS says" if name in tables else "is missing"
            raise SchemaError(f"table {name!r} {wrong}", way_out="give the tables that `tpch_tables` makes")
        if not tables[name].num_rows:
            raise SchemaError(
                f"table {name!r} is empty, so no row can be made like one of its rows", way_out="give a table with rows"
            )
