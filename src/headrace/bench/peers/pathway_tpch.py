"""Queries of TPC-H on Pathway, over a stream of insertions and deletions. Runs in the environment of Pathway.

    python pathway_tpch.py QUERY FOLDER RESULT

Files cannot delete in Pathway unless they vanish, and its streams of upserts may apply what comes in one commit in any
order; so rows come from Python, which can take back single rows. Readers hand them over directly, past the connector's
queue, and keep in step with one another. Amounts are whole numbers, because Pathway 0.33 forgets changes of a sum of
floats when as many rows enter a group as leave it in one commit. Joins are in the order that leaves the least to do.
"""

from __future__ import annotations

import datetime
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COMMIT_MILLISECONDS = 100
KEYS = ("r_regionkey", "n_nationkey", "s_suppkey", "c_custkey", "o_orderkey", "l_orderkey", "l_linenumber")
TEXTS = ("name", "mktsegment", "address", "phone", "comment", "returnflag")
EPOCH = datetime.date(1970, 1, 1)


def days(date: str) -> int:
    """Return a date as the days since 1970, as in the files."""
    return (datetime.date.fromisoformat(date) - EPOCH).days


def q3(pw: Any, t: dict[str, Any]) -> Any:
    """Revenue of unshipped orders of the building segment."""
    customer = t["customer"].filter(pw.this.c_mktsegment == "BUILDING")
    orders = t["orders"].filter(pw.this.o_orderdate < days("1995-03-15"))
    lineitem = t["lineitem"].filter(pw.this.l_shipdate > days("1995-03-15"))
    ordered = orders.join(customer, orders.o_custkey == customer.c_custkey).select(
        orders.o_orderkey, orders.o_orderdate, orders.o_shippriority
    )
    sold = lineitem.join(ordered, lineitem.l_orderkey == ordered.o_orderkey).select(
        lineitem.l_orderkey, ordered.o_orderdate, ordered.o_shippriority, volume=volume(lineitem)
    )
    return revenue(pw, sold, "l_orderkey", "o_orderdate", "o_shippriority")


def q5(pw: Any, t: dict[str, Any]) -> Any:
    """Revenue of local suppliers in Asia, by nation."""
    region = t["region"].filter(pw.this.r_name == "ASIA")
    nation = t["nation"]
    nation = nation.join(region, nation.n_regionkey == region.r_regionkey).select(nation.n_nationkey, nation.n_name)
    customer, supplier, lineitem = t["customer"], t["supplier"], t["lineitem"]
    customer = customer.join(nation, customer.c_nationkey == nation.n_nationkey).select(
        customer.c_custkey, customer.c_nationkey, nation.n_name
    )
    orders = t["orders"].filter(
        (pw.this.o_orderdate >= days("1994-01-01")) & (pw.this.o_orderdate < days("1995-01-01"))
    )
    orders = orders.join(customer, orders.o_custkey == customer.c_custkey).select(
        orders.o_orderkey, customer.c_nationkey, customer.n_name
    )
    sold = lineitem.join(orders, lineitem.l_orderkey == orders.o_orderkey).select(
        lineitem.l_suppkey, orders.c_nationkey, orders.n_name, volume=volume(lineitem)
    )
    local = sold.join(supplier, sold.l_suppkey == supplier.s_suppkey, sold.c_nationkey == supplier.s_nationkey).select(
        sold.n_name, sold.volume
    )
    return revenue(pw, local, "n_name")


def q7(pw: Any, t: dict[str, Any]) -> Any:
    """Volume shipped between France and Germany, by year."""
    nation = t["nation"].filter((pw.this.n_name == "FRANCE") | (pw.this.n_name == "GERMANY"))
    customer, supplier, orders = t["customer"], t["supplier"], t["orders"]
    customer = customer.join(nation, customer.c_nationkey == nation.n_nationkey).select(
        customer.c_custkey, cust_nation=nation.n_name
    )
    supplier = supplier.join(nation, supplier.s_nationkey == nation.n_nationkey).select(
        supplier.s_suppkey, supp_nation=nation.n_name
    )
    lineitem = t["lineitem"].filter(
        (pw.this.l_shipdate >= days("1995-01-01")) & (pw.this.l_shipdate <= days("1996-12-31"))
    )
    supplied = lineitem.join(supplier, lineitem.l_suppkey == supplier.s_suppkey).select(
        lineitem.l_orderkey,
        supplier.supp_nation,
        l_year=pw.if_else(lineitem.l_shipdate < days("1996-01-01"), 1995, 1996),
        volume=volume(lineitem),
    )
    orders = orders.join(customer, orders.o_custkey == customer.c_custkey).select(
        orders.o_orderkey, customer.cust_nation
    )
    shipping = supplied.join(orders, supplied.l_orderkey == orders.o_orderkey).select(
        supplied.supp_nation, orders.cust_nation, supplied.l_year, supplied.volume
    )
    return revenue(
        pw, shipping.filter(pw.this.supp_nation != pw.this.cust_nation), "supp_nation", "cust_nation", "l_year"
    )


def q10(pw: Any, t: dict[str, Any]) -> Any:
    """Revenue lost on returned items, by customer."""
    customer, nation = t["customer"], t["nation"]
    lineitem = t["lineitem"].filter(pw.this.l_returnflag == "R")
    orders = t["orders"].filter(
        (pw.this.o_orderdate >= days("1993-10-01")) & (pw.this.o_orderdate < days("1994-01-01"))
    )
    returned = lineitem.join(orders, lineitem.l_orderkey == orders.o_orderkey).select(
        orders.o_custkey, volume=volume(lineitem)
    )
    of_customer = ("c_custkey", "c_name", "c_acctbal", "c_phone", "c_address", "c_comment")
    customer = customer.join(nation, customer.c_nationkey == nation.n_nationkey).select(
        *(customer[column] for column in of_customer), nation.n_name
    )
    lost = returned.join(customer, returned.o_custkey == customer.c_custkey).select(
        *(customer[column] for column in (*of_customer, "n_name")), returned.volume
    )
    return revenue(pw, lost, *of_customer, "n_name")


QUERIES: dict[str, Callable[[Any, dict[str, Any]], Any]] = {"q3": q3, "q5": q5, "q7": q7, "q10": q10}


def volume(lineitem: Any) -> Any:
    """Return l_extendedprice * (1 - l_discount) in units of 1/10,000: both factors come in hundredths."""
    return lineitem.l_extendedprice * (100 - lineitem.l_discount)


def revenue(pw: Any, table: Any, *group: str) -> Any:
    """Sum volumes by group."""
    columns = [table[name] for name in group]
    return table.groupby(*columns).reduce(*columns, revenue=pw.reducers.sum(table.volume))


class Lockstep:
    """Keeps readers of different tables in step: none starts a piece of the stream before all are at it or past it."""

    def __init__(self, pieces: dict[str, list[int]]) -> None:
        self._next = {name: numbers[0] for name, numbers in pieces.items() if numbers}
        self._pieces = pieces
        self._changed = threading.Condition()

    def turns(self, name: str) -> Iterator[int]:
        """Yield the number of each record batch of a table when it may be read."""
        for number, piece in enumerate(self._pieces[name]):
            with self._changed:
                self._next[name] = piece
                self._changed.notify_all()
                while min(self._next.values()) < piece:
                    self._changed.wait()
            yield number
        with self._changed:
            self._next.pop(name, None)
            self._changed.notify_all()


def main(query: str, folder: Path) -> dict[str, Any]:
    """Run a query over a stream."""
    import pathway as pw  # type: ignore[import-not-found]

    manifest = json.loads((folder / "stream.json").read_text())
    step = Lockstep(manifest["pieces"])
    tables = {name: read(pw, folder, name, columns, step) for name, columns in manifest["tables"].items()}
    answer: dict[Any, dict[str, Any]] = {}

    def on_change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        # In one commit a group may be added anew before its old row is taken back.
        if is_addition:
            answer[key] = row
        elif answer.get(key) == row:
            del answer[key]

    pw.io.subscribe(QUERIES[query](pw, tables), on_change)
    start = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - start
    rows = [{name: shown(name, value) for name, value in row.items()} for row in answer.values()]
    in_order = sorted(rows, key=lambda row: [value for name, value in row.items() if name != "revenue"])
    return {"seconds": seconds, "answer": in_order}


def read(pw: Any, folder: Path, name: str, columns: list[str], step: Lockstep) -> Any:
    """Return a table that follows its file."""
    kind = pw.io.python.PythonConnectorEventType
    finish = (kind.INSERT, None, {"_pw_special": pw.io.python.FINISH_LITERAL})

    class Reader(pw.io.python.ConnectorSubject):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            # The engine takes rows from here one by one; without the queue in between a run costs a third less.
            self._read = changes(folder / f"{name}.arrow", columns, step.turns(name), kind, finish).__next__

        def run(self) -> None:
            return

        @property
        def _deletions_enabled(self) -> bool:
            return True

    schema = pw.schema_builder(
        {
            column: pw.column_definition(primary_key=column in KEYS, dtype=str if is_text(column) else int)
            for column in columns
        }
    )
    return pw.io.python.read(Reader(), schema=schema, autocommit_duration_ms=COMMIT_MILLISECONDS)


def changes(path: Path, columns: list[str], turns: Iterator[int], kind: Any, finish: Any) -> Iterator[Any]:
    """Yield the changes in a file as the engine takes them."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as mapped:
        file = pa.ipc.open_file(mapped)
        for number in turns:
            batch = file.get_batch(number)
            values = (
                batch.column(column).to_pylist() if is_text(column) else batch.column(column).to_numpy().tolist()
                for column in columns
            )
            for diff, *row in zip(batch.column("__diff").to_numpy().tolist(), *values, strict=True):
                yield (kind.INSERT if diff > 0 else kind.DELETE, None, dict(zip(columns, row, strict=True)))
    yield finish


def is_text(column: str) -> bool:
    """Tell whether a column of TPC-H holds text; all others hold whole numbers here."""
    return column.partition("_")[2] in TEXTS


def shown(column: str, value: Any) -> Any:
    """Return a value of the answer as others would write it."""
    if column == "revenue":
        return value / 10_000
    if column == "c_acctbal":
        return value / 100
    return (EPOCH + datetime.timedelta(value)).isoformat() if column.endswith("date") else value


if __name__ == "__main__":
    try:
        result = main(sys.argv[1], Path(sys.argv[2]))
    except Exception as error:  # whatever it is, the benchmark shall be able to print it
        result = {"failed": f"{type(error).__name__}: {error}"}
    Path(sys.argv[3]).write_text(json.dumps(result))
