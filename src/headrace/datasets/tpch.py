"""TPC-H: the eight plain tables for queries, and a numeric variant with duplicated dimensions for training joins.

The rows come from the program `tpchgen-cli`, so they are those of dbgen. Scale is TPC-H's scale factor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from headrace.datasets.dataset import Columns, Dataset, TableSpec, check_duplicates, copies
from headrace.errors import HeadraceError, SchemaError

_JOIN = ("orderkey", "partkey", "suppkey", "custkey", "nationkey", "regionkey")
_FIRST_DAY = int(np.datetime64("1992-01-01").astype(np.int64))
_CLERK = len("Clerk#")


def _plain(
    name: str, columns: str, key: tuple[str, ...], *composite: tuple[tuple[str, ...], str], **references: str
) -> TableSpec:
    ddl = ", ".join(f"{column} NOT NULL" for column in columns.split("; "))
    return TableSpec(name, ddl, key, references=(*references.items(), *composite))


TPCH_SCHEMAS = {
    table.name: table
    for table in (
        _plain("region", "r_regionkey BIGINT; r_name STRING; r_comment STRING", ("r_regionkey",)),
        _plain(
            "nation",
            "n_nationkey BIGINT; n_name STRING; n_regionkey BIGINT; n_comment STRING",
            ("n_nationkey",),
            n_regionkey="region",
        ),
        _plain(
            "supplier",
            "s_suppkey BIGINT; s_name STRING; s_address STRING; s_nationkey BIGINT; s_phone STRING; "
            "s_acctbal DECIMAL(15, 2); s_comment STRING",
            ("s_suppkey",),
            s_nationkey="nation",
        ),
        _plain(
            "customer",
            "c_custkey BIGINT; c_name STRING; c_address STRING; c_nationkey BIGINT; c_phone STRING; "
            "c_acctbal DECIMAL(15, 2); c_mktsegment STRING; c_comment STRING",
            ("c_custkey",),
            c_nationkey="nation",
        ),
        _plain(
            "part",
            "p_partkey BIGINT; p_name STRING; p_mfgr STRING; p_brand STRING; p_type STRING; p_size INT; "
            "p_container STRING; p_retailprice DECIMAL(15, 2); p_comment STRING",
            ("p_partkey",),
        ),
        _plain(
            "partsupp",
            "ps_partkey BIGINT; ps_suppkey BIGINT; ps_availqty INT; ps_supplycost DECIMAL(15, 2); ps_comment STRING",
            ("ps_partkey", "ps_suppkey"),
            ps_partkey="part",
            ps_suppkey="supplier",
        ),
        _plain(
            "orders",
            "o_orderkey BIGINT; o_custkey BIGINT; o_orderstatus STRING; o_totalprice DECIMAL(15, 2); o_orderdate DATE; "
            "o_orderpriority STRING; o_clerk STRING; o_shippriority INT; o_comment STRING",
            ("o_orderkey",),
            o_custkey="customer",
        ),
        _plain(
            "lineitem",
            "l_orderkey BIGINT; l_partkey BIGINT; l_suppkey BIGINT; l_linenumber INT; l_quantity DECIMAL(15, 2); "
            "l_extendedprice DECIMAL(15, 2); l_discount DECIMAL(15, 2); l_tax DECIMAL(15, 2); l_returnflag STRING; "
            "l_linestatus STRING; l_shipdate DATE; l_commitdate DATE; l_receiptdate DATE; l_shipinstruct STRING; "
            "l_shipmode STRING; l_comment STRING",
            ("l_orderkey", "l_linenumber"),
            (("l_partkey", "l_suppkey"), "partsupp"),
            l_orderkey="orders",
            l_partkey="part",
            l_suppkey="supplier",
        ),
    )
}
"""The plain tables, by name, referenced ones before those that reference them."""


def tpch_tables(scale: float) -> dict[str, pa.Table]:
    """Make the eight plain tables of TPC-H at a scale factor, with the columns and types of `TPCH_SCHEMAS`."""
    return _read(scale, {name: table.schema.names for name, table in TPCH_SCHEMAS.items()})


def tpch_columns(scale: float, columns: Mapping[str, Sequence[str]]) -> dict[str, pa.Table]:
    """Make some columns of some plain tables of TPC-H at a scale factor."""
    return _read(scale, {name: list(wanted) for name, wanted in columns.items()})


def duplicated_tpch(duplicates: int = 2) -> Dataset:
    """Return TPC-H's numeric variant with so many copies of each row of its six dimensions.

    It has the 37 attributes of F-IVM on Flink: 6 to join on and 31 features. Dates are days since 1992-01-01, texts
    are codes in alphabetical order; comments, names, addresses and telephones are left out. Orders counts as a fact
    table; all others but lineitem are dimensions. At scale 0.5 and 2 copies 4,900,000 rows join to 192,000,000.
    Customer's nation is left out: with it a natural join would keep only what customers buy in their own nation.
    """
    check_duplicates(duplicates)

    def key(*columns: str) -> tuple[str, ...]:
        return columns if duplicates == 1 else ()

    tables = (
        TableSpec.with_features(
            "lineitem",
            "orderkey BIGINT, partkey BIGINT, suppkey BIGINT, l_linenumber INT, l_quantity DOUBLE, "
            "l_extendedprice DOUBLE, l_discount DOUBLE, l_tax DOUBLE, l_returnflag INT, l_linestatus INT, "
            "l_shipdate INT, l_commitdate INT, l_receiptdate INT, l_shipinstruct INT, l_shipmode INT",
            apart=_JOIN,
            key=("orderkey", "l_linenumber"),
        ),
        TableSpec.with_features(
            "orders",
            "orderkey BIGINT, custkey BIGINT, o_orderstatus INT, o_totalprice DOUBLE, o_orderdate INT, "
            "o_orderpriority INT, o_clerk INT, o_shippriority INT",
            apart=_JOIN,
            key=("orderkey",),
        ),
        TableSpec.with_features(
            "customer", "custkey BIGINT, c_acctbal DOUBLE, c_mktsegment INT", apart=_JOIN, key=key("custkey")
        ),
        TableSpec.with_features(
            "partsupp",
            "partkey BIGINT, suppkey BIGINT, ps_availqty INT, ps_supplycost DOUBLE",
            apart=_JOIN,
            key=key("partkey", "suppkey"),
        ),
        TableSpec.with_features(
            "part",
            "partkey BIGINT, p_mfgr INT, p_brand INT, p_type INT, p_size INT, p_container INT, p_retailprice DOUBLE",
            apart=_JOIN,
            key=key("partkey"),
        ),
        TableSpec.with_features(
            "supplier", "suppkey BIGINT, nationkey BIGINT, s_acctbal DOUBLE", apart=_JOIN, key=key("suppkey")
        ),
        TableSpec.with_features(
            "nation", "nationkey BIGINT, regionkey BIGINT, n_name INT", apart=_JOIN, key=key("nationkey")
        ),
        TableSpec.with_features("region", "regionkey BIGINT, r_name INT", apart=_JOIN, key=key("regionkey")),
    )

    def make(scale: float, random: np.random.Generator) -> dict[str, Columns]:
        # The rows are TPC-H's own: only their order, which is drawn afterwards, depends on the seed.
        plain = {table.name: [_plain_name(table.name, column) for column in table.schema.names] for table in tables}
        read = _read(scale, plain)
        made = {}
        for table in tables:
            columns = zip(table.schema.names, read.pop(table.name).columns, strict=True)
            coded = {name: _number(name, values) for name, values in columns}
            made[table.name] = coded if table.name in ("lineitem", "orders") else copies(coded, duplicates)
        return made

    return Dataset(
        name="tpch",
        tables=tables,
        label="l_extendedprice",
        # A lineitem hardly shares its keys with another: it is joined with all that it meets at once, under partkey.
        order="""\
suppkey
  partkey: partsupp, part
    orderkey !stop: lineitem !stop
      custkey: orders, customer
  nationkey: supplier
    regionkey: nation, region""",
        about=f"TPC-H in numbers, each dimension row {duplicates} times: a snowflake of 8 tables",
        make=make,
    )


def _plain_name(table: str, column: str) -> str:
    if column not in _JOIN:
        return column
    return f"{'ps' if table == 'partsupp' else table[0]}_{column}"


def _number(name: str, values: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column as numbers; equal texts get equal codes, in alphabetical order."""
    if pa.types.is_decimal(values.type):
        # Arrow's cast is off by a bit at times; rounded, 0.1 is the double that 0.1 stands for.
        return np.asarray(np.round(values.cast(pa.float64()).to_numpy(), values.type.scale))
    if pa.types.is_date(values.type):
        return np.asarray(values.cast(pa.int32()).to_numpy() - _FIRST_DAY)
    if not pa.types.is_string(values.type):
        return np.asarray(values.to_numpy())
    if name == "o_clerk":
        return np.asarray(pc.utf8_slice_codeunits(values, _CLERK).cast(pa.int32()).to_numpy())
    encoded = values.combine_chunks().dictionary_encode()
    rank = np.argsort(np.argsort(encoded.dictionary.to_numpy(zero_copy_only=False)))
    return np.asarray(rank[encoded.indices.to_numpy()])


def _read(scale: float, wanted: dict[str, list[str]]) -> dict[str, pa.Table]:
    """Run the generator, and read the wanted columns of each table."""
    if not scale > 0:
        raise SchemaError(f"there is no TPC-H at scale {scale}", way_out="give a scale factor above 0, such as 0.01")
    with tempfile.TemporaryDirectory(prefix="headrace-tpch-") as folder:
        command = [_program(), "parquet", "--scale-factor", str(scale), "--output-dir", folder, "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise HeadraceError(
                f"tpchgen-cli failed with exit code {done.returncode}.\n  {done.stderr.strip()}",
                way_out='Check the space in the folder of temporary files, and `pip install "headrace[datasets]"`.',
            )
        return {
            name: _typed(pq.read_table(Path(folder) / f"{name}.parquet", columns=columns), TPCH_SCHEMAS[name])
            for name, columns in wanted.items()
        }


def _typed(table: pa.Table, spec: TableSpec) -> pa.Table:
    # The generator writes views of strings, which not every reader of Arrow knows, and field numbers as metadata.
    typed = table.cast(pa.schema([spec.schema.field(name) for name in table.schema.names]))
    return _first_of_each_key(typed) if spec.name == "partsupp" else typed


def _first_of_each_key(partsupp: pa.Table) -> pa.Table:
    """Drop rows whose key came before: below scale 0.024 dbgen's formula gives some parts a supplier twice."""
    part, supplier = partsupp["ps_partkey"].to_numpy(), partsupp["ps_suppkey"].to_numpy()
    first = np.unique(part * (supplier.max() + 1) + supplier, return_index=True)[1]
    return partsupp if len(first) == partsupp.num_rows else partsupp.take(np.sort(first))


def _program() -> str:
    # Beside Python first: a virtual environment need not be on the PATH to be used.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("tpchgen-cli", path=path)
    if found is None:
        raise HeadraceError(
            "TPC-H is generated by the program tpchgen-cli, which is not installed.",
            way_out='Run: pip install "headrace[datasets]"',
        )
    return found


TPCH = duplicated_tpch()
