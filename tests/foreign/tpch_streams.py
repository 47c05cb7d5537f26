"""TPC-H's tables in small, and streams of changes to them that end in known rows.

Whole TPC-H at a scale that tests can afford hardly has a row for its choosier queries. So orders are sampled by query:
some that are in its join, and some at random, each with all its lineitems and all that those refer to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tests.foreign.tpch_queries import QUERIES, query_text

from headrace.datasets import TPCH_SCHEMAS, tpch_tables
from headrace.relation.schema import DIFF

Tables = dict[str, pa.Table]
Positions = Mapping[str, NDArray[np.int64]]  # of rows, by table

_SCALE = 0.01
_ORDERS_A_QUERY = 60
_OTHER_ORDERS = 150
_OTHER_CUSTOMERS = 50
# The innermost FROM and WHERE of a query: in the fixtures a clause begins its line, and a subquery is indented.
_JOIN = re.compile(
    r"^(?P<indent> *)FROM (?!\()(?P<join>.*?)(?=^(?P=indent)GROUP BY|^\) AS|\Z)", re.MULTILINE | re.DOTALL
)


@cache
def sample() -> Tables:
    """A few thousand lineitems with all that they refer to; every query has an answer over them."""
    tables = tpch_tables(_SCALE)
    random = np.random.default_rng(7)
    with duckdb.connect() as connection:
        _register(connection, tables)
        tables["part"] = _with_rare_parts(connection, tables["part"])
        _register(connection, tables)
        chosen = [random.choice(tables["orders"]["o_orderkey"].to_numpy(), _OTHER_ORDERS)]
        for number in QUERIES:
            join = _JOIN.search(query_text(number))
            assert join is not None
            found = connection.sql(f"SELECT DISTINCT l_orderkey FROM {join['join']} ORDER BY 1").fetchnumpy()[
                "l_orderkey"
            ]
            chosen.append(random.choice(found, min(_ORDERS_A_QUERY, len(found)), replace=False))
    orders = _among(tables["orders"], "o_orderkey", np.concatenate(chosen))
    lineitem = _among(tables["lineitem"], "l_orderkey", orders["o_orderkey"].to_numpy())
    strangers = random.choice(tables["customer"]["c_custkey"].to_numpy(), _OTHER_CUSTOMERS)
    customer = _among(tables["customer"], "c_custkey", np.append(orders["o_custkey"].to_numpy(), strangers))
    part = _among(tables["part"], "p_partkey", lineitem["l_partkey"].to_numpy())
    partsupp = tables["partsupp"].join(
        lineitem.select(["l_partkey", "l_suppkey"]),
        ["ps_partkey", "ps_suppkey"],
        ["l_partkey", "l_suppkey"],
        "left semi",
    )
    found = {"orders": orders, "lineitem": lineitem, "customer": customer, "part": part, "partsupp": partsupp}
    found |= {name: tables[name] for name in ("region", "nation", "supplier")}
    # In the order of the key, so that the sample does not depend on the order in which Arrow's threads join.
    return {
        name: found[name].sort_by([(column, "ascending") for column in spec.key]).combine_chunks().cast(spec.schema)
        for name, spec in TPCH_SCHEMAS.items()
    }


def _with_rare_parts(connection: duckdb.DuckDBPyConnection, part: pa.Table) -> pa.Table:
    """Give some parts the properties that Q8 and Q19 look for; at this scale nature gives one of them a single row."""
    steel = connection.sql("""
        SELECT DISTINCT l_partkey FROM lineitem
        JOIN supplier ON l_suppkey = s_suppkey JOIN nation n2 ON s_nationkey = n2.n_nationkey
        JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
        JOIN nation n1 ON c_nationkey = n1.n_nationkey JOIN region ON n1.n_regionkey = r_regionkey
        WHERE n2.n_name = 'BRAZIL' AND r_name = 'AMERICA' AND year(o_orderdate) IN (1995, 1996)
        ORDER BY 1 LIMIT 12""")
    flown = connection.sql("""
        SELECT l_partkey, min(CAST(l_quantity AS INT)) AS quantity FROM lineitem
        WHERE l_shipmode = 'AIR' AND l_shipinstruct = 'DELIVER IN PERSON' AND l_quantity <= 30
        GROUP BY l_partkey ORDER BY 1 LIMIT 60""")
    rows = {row["p_partkey"]: row for row in part.to_pylist()}
    for (key,) in steel.fetchall():
        rows[key]["p_type"] = "ECONOMY ANODIZED STEEL"
    for key, quantity in flown.fetchall():
        kinds = [("Brand#12", "SM BOX"), ("Brand#23", "MED BAG"), ("Brand#34", "LG PKG")]
        rows[key]["p_brand"], rows[key]["p_container"] = kinds[(quantity - 1) // 10]
        rows[key]["p_size"] = 1 + key % 5
    return pa.Table.from_pylist(list(rows.values()), part.schema)


def _register(connection: duckdb.DuckDBPyConnection, tables: Tables) -> None:
    for name, rows in tables.items():
        connection.register(name, rows)


def _among(table: pa.Table, column: str, values: NDArray[np.int64]) -> pa.Table:
    return table.filter(pc.is_in(table[column], pa.array(np.unique(values))))


@dataclass(frozen=True)
class StreamStep:
    """The changes of one step, and the rows that are there after it."""

    changes: Tables
    rows: Tables


class Rows:
    """All rows that ever are in the tables, and which of them are there now."""

    def __init__(self, tables: Tables, random: np.random.Generator) -> None:
        self.tables = tables
        self.random = random
        self.there = {name: np.zeros(table.num_rows, np.bool_) for name, table in tables.items()}

    def step(self, come: Positions, leave: Positions | None = None) -> StreamStep:
        """Have rows come and leave; one that does both stays as it was."""
        leave = leave or {}
        changes = {}
        for name in sorted(come.keys() | leave.keys()):
            came, left = come.get(name, _NONE), leave.get(name, _NONE)
            assert not self.there[name][np.setdiff1d(came, left)].any(), "a row comes that is there"
            assert self.there[name][left].all(), "a row leaves that is not there"
            self.there[name][left] = False
            self.there[name][came] = True
            mixed = self.random.permutation(len(came) + len(left))
            diff = np.repeat([1, -1], [len(came), len(left)])[mixed]
            rows = self.tables[name].take(np.concatenate([came, left])[mixed])
            changes[name] = rows.append_column(DIFF, pa.array(diff))
        return StreamStep(changes, {name: self.tables[name].filter(pa.array(now)) for name, now in self.there.items()})

    def spread(self, positions: Positions, parts: int) -> list[Positions]:
        """Deal rows of all tables to parts at random."""
        dealt = {name: (at, self.random.integers(0, parts, len(at))) for name, at in positions.items()}
        return [{name: at[of == part] for name, (at, of) in dealt.items()} for part in range(parts)]

    def positions(self) -> dict[str, NDArray[np.int64]]:
        """The positions of all rows."""
        return {name: np.arange(table.num_rows) for name, table in self.tables.items()}


_NONE = np.zeros(0, np.int64)


def inserts(tables: Tables, steps: int = 8) -> Iterator[StreamStep]:
    """All rows come, those of all tables mixed: a row often comes before what it refers to."""
    rows = Rows(tables, np.random.default_rng(1))
    for part in rows.spread(rows.positions(), steps):
        yield rows.step(part)


def undone(tables: Tables) -> Iterator[StreamStep]:
    """The first half of every table comes and stays; each row of the second half comes, and leaves later."""
    rows = Rows(tables, np.random.default_rng(2))
    halves = {name: (table.num_rows + 1) // 2 for name, table in tables.items()}
    second = {name: at[halves[name] :] for name, at in rows.positions().items()}
    yield rows.step({name: at[: halves[name]] for name, at in rows.positions().items()})
    a, b, c = rows.spread(second, 3)
    yield rows.step(a)
    yield rows.step({name: np.append(b[name], c[name]) for name in tables})  # now all rows are there
    first, last = rows.spread(second, 2)
    yield rows.step({}, first)
    yield rows.step({}, last)


def sliding(tables: Tables, steps: int = 8) -> Iterator[StreamStep]:
    """Orders come by date with their lineitems, and leave in the same order; at most a half of them are there."""
    rows = Rows(tables, np.random.default_rng(3))
    by_date = np.argsort(tables["orders"]["o_orderdate"].to_numpy(), kind="stable")
    parts = np.array_split(by_date, steps)
    order_of = {int(key): at for at, key in enumerate(tables["orders"]["o_orderkey"].to_numpy())}
    lineitems = np.array([order_of[int(key)] for key in tables["lineitem"]["l_orderkey"].to_numpy()])

    def batch(orders: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        return {"orders": orders, "lineitem": np.flatnonzero(np.isin(lineitems, orders))}

    window = max(1, steps // 2)
    for number, part in enumerate(parts):
        others = {name: at for name, at in rows.positions().items() if name not in ("orders", "lineitem")}
        come = batch(part) | (others if number == 0 else {})
        yield rows.step(come, batch(parts[number - window]) if number >= window else None)


def dangling(tables: Tables) -> Iterator[StreamStep]:
    """Rows of all tables come, change and leave at random, whatever refers to them.

    On the way all nations leave and come back, and so does everything.
    """
    rows = Versions(tables, np.random.default_rng(4))
    every = tuple(tables)
    yield rows.step(rows.draw(0.8))
    yield rows.change(every)
    yield rows.change([name for name in every if name != "lineitem"])  # all but the table that refers to all others
    yield rows.change(every, all_leave=("nation",))
    yield rows.change(["orders", "supplier", "region", "lineitem"])  # rows come while no nation is there
    yield rows.change(["nation", "customer", "part", "lineitem"], all_come=("nation",))
    yield rows.step({}, {name: np.flatnonzero(there) for name, there in rows.there.items()})
    yield rows.step(rows.draw(0.9))


class Versions(Rows):
    """Rows of which each has two versions, at most one of them there: an update changes one for the other."""

    def __init__(self, tables: Tables, random: np.random.Generator) -> None:
        self.sizes = {name: table.num_rows for name, table in tables.items()}
        super().__init__(
            {name: pa.concat_tables([table, _shifted(name, table)]) for name, table in tables.items()}, random
        )

    def draw(self, share: float) -> Positions:
        """Draw a share of the rows, in their first version."""
        return {name: np.flatnonzero(self.random.random(size) < share) for name, size in self.sizes.items()}

    def change(
        self, names: Iterable[str], all_leave: tuple[str, ...] = (), all_come: tuple[str, ...] = ()
    ) -> StreamStep:
        """Have rows of some tables leave, change and come, and some leave and come at once."""
        come, leave = {}, {}
        for name in names:
            size, there = self.sizes[name], np.flatnonzero(self.there[name])
            fate = np.zeros(len(there)) if name in all_leave else self.random.random(len(there))
            gone, changed, touched = there[fate < 0.12], there[(fate >= 0.12) & (fate < 0.2)], there[fate >= 0.98]
            absent = np.setdiff1d(np.arange(size), there % size)
            share = 0.0 if name in all_leave else 1.0 if name in all_come else 0.5
            new = absent[self.random.random(len(absent)) < share]
            # The other version of a row is that many rows further on, or back.
            others = (changed + size) % (2 * size)
            come[name] = np.concatenate([new + size * self.random.integers(0, 2, len(new)), others, touched])
            leave[name] = np.concatenate([gone, changed, touched])
        return self.step(come, leave)


def _shifted(name: str, table: pa.Table) -> pa.Table:
    """Another version of every row: its key, and all else from another row, with what that refers to."""
    key = TPCH_SCHEMAS[name].key
    far = (np.arange(table.num_rows) + table.num_rows // 3) % table.num_rows
    moved = table.take(far)
    return pa.table([table[c] if c in key else moved[c] for c in table.column_names], schema=table.schema)


Stream = Callable[[Tables], Iterator[StreamStep]]
