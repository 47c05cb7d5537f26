"""Windows that slide over TPC-H, against a simulation that goes row by row."""

from __future__ import annotations

from collections import Counter, deque

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.datasets import TPCH_SCHEMAS, Updates, fifo_updates, fifo_window, tpch_tables
from headrace.errors import SchemaError

Event = tuple[str, int, int]  # table, row number, +1 or -1


def events(updates: Updates) -> list[Event]:
    """The sequence in plain words."""
    where = [(name, row) for name, table in updates.tables.items() for row in range(table.num_rows)]
    return [(*where[abs(number) - 1], 1 if number > 0 else -1) for number in updates.sequence.tolist()]


def facts(sizes: list[int], shuffled: int | None = None) -> dict[str, pa.Table]:
    """Orders with so many lineitems each; their keys have gaps and do not ascend."""
    keys = [7 * order + 3 if order % 2 else -order for order in range(len(sizes))]
    owners = np.repeat(np.array(keys, np.int64), sizes)
    if shuffled is not None:
        owners = np.random.default_rng(shuffled).permutation(owners)
    return {
        "orders": pa.table({"o_orderkey": pa.array(keys, pa.int64())}),
        "lineitem": pa.table({"l_number": np.arange(len(owners)), "l_orderkey": owners}),
    }


def inserts(tables: dict[str, pa.Table], late: bool) -> list[Event]:
    """Each order and its lineitems."""
    owners = tables["lineitem"]["l_orderkey"].to_pylist()
    found: list[Event] = []
    for order, key in enumerate(tables["orders"]["o_orderkey"].to_pylist()):
        items = [("lineitem", item, 1) for item, owner in enumerate(owners) if owner == key]
        found += [*items, ("orders", order, 1)] if late else [("orders", order, 1), *items]
    return found


def simulated(tables: dict[str, pa.Table], arriving: list[Event], window: int | None, drain: bool) -> list[Event]:
    """What the rules say, one row after another."""
    keys = tables["orders"]["o_orderkey"].to_pylist()
    owners = tables["lineitem"]["l_orderkey"].to_pylist()
    to_go = Counter(owners)
    there: list[int] = []  # orders
    items: deque[int] = deque()
    done: list[Event] = []

    def leave(order: int) -> None:
        there.remove(order)
        done.append(("orders", order, -1))

    def oldest_leaves() -> None:
        item = items.popleft()
        done.append(("lineitem", item, -1))
        to_go[owners[item]] -= 1
        order = keys.index(owners[item])
        if not to_go[owners[item]] and order in there:
            leave(order)

    for event in arriving:
        table, row, _ = event
        done.append(event)
        if table == "lineitem":
            items.append(row)
            if window is not None and len(items) > window:
                oldest_leaves()
        else:
            there.append(row)
            if keys[row] in owners and not to_go[keys[row]]:
                leave(row)
    while drain and items:
        oldest_leaves()
    for order in sorted(there) if drain else []:
        leave(order)
    return done


SIZES = st.lists(st.integers(0, 7), max_size=25)
WINDOWS = st.one_of(st.none(), st.integers(1, 60))


@given(SIZES, WINDOWS, st.booleans(), st.booleans(), st.one_of(st.none(), st.integers(0, 3)))
@settings(max_examples=150, deadline=None)
def test_orders_and_their_lineitems_come_and_go_as_in_a_simulation(sizes, window, late, drain, shuffled):
    tables = facts(sizes, shuffled)
    updates = fifo_updates(tables, window, late=late, drain=drain)
    assert events(updates) == simulated(tables, inserts(tables, late), window, drain)
    assert len(updates) == updates.total == len(updates.sequence)


@given(SIZES, WINDOWS, st.booleans(), st.booleans(), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_shuffled_rows_follow_the_same_rules(sizes, window, late, drain, seed):
    tables = facts(sizes)
    found = events(fifo_updates(tables, window, late=late, shuffle=seed, drain=drain))
    arriving = [event for event in found if event[2] == 1]
    assert sorted(arriving) == sorted(inserts(tables, late))
    assert found == simulated(tables, arriving, window, drain)


def test_shuffling_makes_keys_dangle_for_a_while_and_not_for_long():
    tables = facts([4] * 3_000)
    found = events(fifo_updates(tables, window=500, shuffle=1))
    arrival = {event[:2]: place for place, event in enumerate(e for e in found if e[2] == 1)}
    waits = [arrival["orders", item // 4] - arrival["lineitem", item] for item in range(12_000)]
    assert 0.2 < np.mean(np.array(waits) > 0) < 0.8
    assert max(waits) < 500
    assert found == events(fifo_updates(tables, window=500, shuffle=1)) != events(fifo_updates(tables, 500, shuffle=2))


def test_without_orders_lineitems_come_as_they_stand():
    tables = {"lineitem": facts([2, 3], shuffled=1)["lineitem"].select(["l_number"])}
    expected = [("lineitem", row, 1) for row in range(3)]
    expected += [("lineitem", 0, -1), ("lineitem", 4, 1), ("lineitem", 1, -1)]
    expected.insert(3, ("lineitem", 3, 1))
    assert events(fifo_updates(tables, window=3)) == expected


@pytest.fixture(scope="module")
def tpch() -> dict[str, pa.Table]:
    return tpch_tables(0.001)


def test_dimensions_come_first_and_go_last(tpch: dict[str, pa.Table]) -> None:
    found = events(fifo_updates(dict(reversed(tpch.items())), window=100, drain=True))
    dimensions = [name for name in TPCH_SCHEMAS if name not in ("orders", "lineitem")]
    head = [(name, row, 1) for name in dimensions for row in range(tpch[name].num_rows)]
    tail = [(name, row, -1) for name in reversed(dimensions) for row in range(tpch[name].num_rows)]
    assert (found[: len(head)], found[-len(tail) :]) == (head, tail)
    middle = found[len(head) : -len(tail)]
    assert middle == simulated(tpch, inserts(tpch, late=False), window=100, drain=True)
    assert len(found) == 2 * sum(table.num_rows for table in tpch.values())


def test_references_never_dangle_unless_asked(tpch: dict[str, pa.Table]) -> None:
    there: dict[str, set[tuple[object, ...]]] = {name: set() for name in tpch}
    numbers = {name: [c.name for c in table.schema if pa.types.is_integer(c.type)] for name, table in tpch.items()}
    slim = {name: table.select(numbers[name]) for name, table in tpch.items()}

    def dangling(**options: bool) -> int:
        for rows in there.values():
            rows.clear()
        count = 0
        for changes in fifo_window(slim, 1, 50, **options):
            ((name, row),) = changes.items()
            key = tuple(row[column][0].as_py() for column in TPCH_SCHEMAS[name].key)
            if row["__diff"][0].as_py() > 0:
                assert key not in there[name]
                there[name].add(key)
                for own, table in TPCH_SCHEMAS[name].references:
                    own = [own] if isinstance(own, str) else list(own)
                    count += tuple(row[column][0].as_py() for column in own) not in there[table]
            else:
                there[name].remove(key)
            assert len(there["lineitem"]) <= 51
        return count

    assert dangling(drain=True) == 0
    assert not any(there.values())
    assert dangling(late=True) == tpch["lineitem"].num_rows
    assert len(there["lineitem"]) == 50


@pytest.mark.parametrize("size", [1, 7, 1_000, 100_000])
def test_batches_are_slices_of_the_sequence(tpch: dict[str, pa.Table], size: int) -> None:
    tables = {name: tpch[name].slice(0, 300) for name in ("nation", "orders", "lineitem")}
    tables["lineitem"] = pa.concat_tables([tables["lineitem"].slice(0, 100), tables["lineitem"].slice(100)])
    updates = fifo_updates(tables, window=40, shuffle=3, drain=True)
    expected = [(*event, place) for place, event in enumerate(events(updates))]
    batches = list(updates.batches(size, positions=True))
    assert [sum(map(len, changes.values())) for changes in batches] == [
        min(size, updates.total - start) for start in range(0, updates.total, size)
    ]
    found = []
    for number, changes in enumerate(batches):
        assert all(changes.values())
        for name, table in changes.items():
            *columns, diff, position = table.columns
            assert (table.column_names[-2:], diff.type) == (["__diff", "__position"], pa.int64())
            wanted = [event for event in expected[number * size : (number + 1) * size] if event[0] == name]
            numbers = [row for _, row, _, _ in wanted]
            rows = updates.tables[name].take(numbers)
            assert pa.table(columns, schema=rows.schema) == rows
            found += list(zip([name] * len(table), numbers, diff.to_pylist(), position.to_pylist(), strict=True))
    assert sorted(found, key=lambda event: event[3]) == expected
    without = [{name: table.drop_columns(["__position"]) for name, table in changes.items()} for changes in batches]
    assert list(updates.batches(size)) == without == list(fifo_window(tables, size, 40, shuffle=3, drain=True))
    assert list(updates.batches(size, first=1)) == without[1:]


@pytest.mark.parametrize(
    ("change", "window", "message"),
    [
        ({"lineitem": None}, 5, "no table 'lineitem'"),
        ({"people": pa.table({"x": [1]})}, 5, "'people' is not a table of TPC-H"),
        ({}, 0, "a window of 0 lineitems holds nothing"),
        ({"orders": pa.table({"o_custkey": [1]})}, 5, "'orders' has no column 'o_orderkey'"),
        ({"lineitem": pa.table({"l_partkey": [1]})}, 5, "'lineitem' has no column 'l_orderkey'"),
        ({"lineitem": pa.table({"l_orderkey": [10, 10_000]})}, 5, "l_orderkey 10000, which no order has"),
        ({"orders": pa.table({"o_orderkey": pa.array([], pa.int64())})}, 5, "which no order has"),
        ({"orders": pa.table({"o_orderkey": [1, 1]})}, 5, "o_orderkey repeats"),
    ],
)
def test_what_cannot_be_right_is_refused(change, window, message):
    tables = {name: table for name, table in (facts([2, 3]) | change).items() if table is not None}
    with pytest.raises(SchemaError, match=message) as caught:
        fifo_window(tables, 10, window)
    assert caught.value.way_out


def test_empty_batches_are_refused():
    with pytest.raises(SchemaError, match="a batch of 0 rows"):
        fifo_window(facts([1]), 0, None)


def test_nothing_gives_nothing():
    assert fifo_updates(facts([]), window=3, drain=True).total == 0
    assert list(fifo_window(facts([]), 10, None)) == []


def test_rows_left_are_those_inserted_and_not_deleted() -> None:
    tables = {"orders": pa.table({"o_orderkey": [1, 2]}), "lineitem": pa.table({"l_orderkey": [1, 1, 2]})}
    left = fifo_updates(tables, window=2).rows_left()
    assert left["orders"].to_pydict() == {"o_orderkey": [1, 2]}
    assert left["lineitem"].to_pydict() == {"l_orderkey": [1, 2]}
    assert fifo_updates(tables, window=2).first(2).rows_left()["lineitem"].num_rows == 1
    assert all(rows.num_rows == 0 for rows in fifo_updates(tables, window=1, drain=True).rows_left().values())
