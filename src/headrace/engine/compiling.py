"""Compile the kernels at installation, or while the JVM starts.

Numba compiles a loop when it is first called, and caches it on disk: the first steps of a fresh installation would wait
seconds for that. So small steps over made-up rows are run beforehand, without Spark: they call the loops that most
views call, with the types that these call them with. `make setup` does so once (`python -m headrace.engine.compiling`).
`connect` does so in a thread while Python only waits for the JVM (`meanwhile`); what is cached already is then loaded,
which saves the first step some tenths of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from headrace.engine import frames
from headrace.factorized.planner import Options, moments_view
from headrace.operators.kernel import ViewKernel
from headrace.operators.order import arranged
from headrace.operators.tree_view import TreeView
from headrace.plan.expression import column
from headrace.plan.join import JoinPlan, Source
from headrace.plan.tree import over_one_table
from headrace.plan.view import Aggregate, Order, Output, Shape, TableRows, ViewPlan
from headrace.relation.change import change_batch
from headrace.relation.layout import TableLayout
from headrace.relation.schema import DIFF, Column, TableSchema
from headrace.relation.types import SqlType
from headrace.runtime.inline import run_inline
from headrace.runtime.location import Location
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import Program, TableTask, ViewTask

_BIGINT, _INT, _DOUBLE, _STRING = (SqlType(name) for name in ("bigint", "int", "double", "string"))
_PRICE, _TOTAL = SqlType("decimal", 10, 2), SqlType("decimal", 20, 2)
_ORDERS = TableSchema.of(
    "orders",
    [
        Column("id", _BIGINT),
        Column("shop", _STRING),
        Column("quantity", _INT),
        Column("price", _PRICE),
        Column("rating", _DOUBLE),
    ],
    key="id",
)
_SHOPS = TableSchema.of("shops", [Column("shop", _STRING), Column("area", _DOUBLE)], key="shop")

_SEED, _BUCKETS = 1, 2
_FEW = 6
# Files of this many rows are mapped, and arrays of mapped files cannot be written, for which Numba compiles once more.
_MANY = 40_000


def compile_kernels(stopped: Callable[[], bool] = lambda: False) -> None:
    """Run steps that call the most used kernels: groups of one table, then moments over a join."""
    for tables, views in (((_ORDERS,), {"groups": _groups()}), ((_ORDERS, _SHOPS), {"moments": _moments()})):
        with TemporaryDirectory(prefix="headrace-compiling-") as root:
            try:
                _run(Location(root), tables, views, stopped)
            finally:
                OPEN.forget_all(root)


def _run(
    location: Location,
    tables: tuple[TableSchema, ...],
    views: Mapping[str, ViewKernel],
    stopped: Callable[[], bool],
) -> None:
    """Insert rows, change some of them, and read the views."""
    location.create(_BUCKETS, {})
    sides = [(name, kernel, side) for name, kernel in views.items() for side in kernel.sides]
    tasks = [
        TableTask(
            TableLayout(schema, _SEED),
            tuple(ViewTask(name, kernel, side, None) for name, kernel, side in sides if side.table == schema.name),
        )
        for schema in tables
    ]
    program = Program(1, location.path, _BUCKETS, tuple(tasks), {})
    for changes in (_inserted, _updated):
        if stopped():
            return
        done = run_inline(program, {schema.name: change_batch(schema, changes(schema)) for schema in tables})
        after = {name: program.state.get(name, {}) | buckets for name, buckets in done.buckets.items()}
        program = replace(program, version=program.version + 1, state=program.state | after)
    for name, kernel in views.items():
        if isinstance(kernel, TreeView):
            layout, state = kernel.layout, program.state
            groups = [
                frames.view_bucket(program.root, layout, name, state, bucket, _BUCKETS) for bucket in range(_BUCKETS)
            ]
            arranged(layout.plan, pa.concat_tables(groups).rename_columns([o.name for o in layout.plan.outputs]))


def _inserted(schema: TableSchema) -> pa.Table:
    return _rows(schema, _MANY if schema is _ORDERS else _FEW, version=0, diff=1)


def _updated(schema: TableSchema) -> pa.Table:
    return pa.concat_tables([_rows(schema, _FEW, version=0, diff=-1), _rows(schema, _FEW, version=1, diff=1)])


def _rows(schema: TableSchema, count: int, version: int, diff: int) -> pa.Table:
    """The first rows of a table; versions of a row differ in everything but the key."""
    number = np.arange(count)
    shops = pa.array([f"shop {i}" for i in range(_FEW)])
    columns = {
        "id": pa.array(number),
        "shop": shops.take(pa.array(number % _FEW)),
        "quantity": pa.array((number % 5 + version).astype(np.int32)),
        "price": pa.array(number + version).cast(pa.decimal128(21, 2)).cast(pa.decimal128(10, 2)),
        "rating": pa.array(number / 3 + version, mask=number % 4 == 0),
        "area": pa.array(number / 7 + version),
    }
    return pa.table({name: columns[name] for name in schema.names} | {DIFF: np.full(count, diff, np.int64)})


def _groups() -> TreeView:
    """The number of orders, and sums, averages and extremes of them, per shop."""
    shop, *arguments = (column(c.name, c.type) for c in _ORDERS.columns[1:])
    aggregates = (
        Aggregate("count", None, _BIGINT, "COUNT(*)"),
        Aggregate("sum", 0, _BIGINT, "SUM(quantity)"),
        Aggregate("sum", 1, _TOTAL, "SUM(price)"),
        Aggregate("max", 1, _PRICE, "MAX(price)"),
        Aggregate("avg", 2, _DOUBLE, "AVG(rating)"),
    )
    plan = ViewPlan(
        over=TableRows("orders"),
        shape=Shape.GROUPS,
        keys=(shop,),
        arguments=tuple(arguments),
        aggregates=aggregates,
        having=None,
        outputs=(
            Output("shop", column("k0", _STRING)),
            *(Output(aggregate.sql, column(f"a{i}", aggregate.type)) for i, aggregate in enumerate(aggregates)),
        ),
        order=(Order("shop", descending=False, nulls_first=True),),
    )
    return TreeView(over_one_table(plan), _SEED, _BUCKETS, {})


def _moments() -> ViewKernel:
    """What a model of prices by areas is fitted from."""
    sources = tuple(
        Source(
            schema.name,
            schema.name,
            None,
            tuple((name, column(name, schema.column(name).type)) for name in names),
            required=frozenset(["shop"]),
        )
        for schema, names in ((_ORDERS, ("price", "shop")), (_SHOPS, ("shop", "area")))
    )
    join = JoinPlan(sources, keys=("price", "area"), arguments=())
    view, _ = moments_view(join, [], ["price", "area"], Options(), _BUCKETS, _SEED, {})
    return view


if __name__ == "__main__":
    compile_kernels()
