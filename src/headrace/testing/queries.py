"""Random single-table queries over a random schema: what the oracle test feeds to Headrace and to Spark."""

from __future__ import annotations

import random

from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType

TYPES = ["tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,2)", "decimal(20,4)", "decimal(38,6)"]
TYPES += ["string", "date", "timestamp", "timestamp_ntz", "boolean"]


def random_schema(rng: random.Random, name: str = "t") -> TableSchema:
    """A table of two to six columns, with or without a key of one or two of them."""
    columns = [Column(f"c{i}", SqlType.parse(rng.choice(TYPES)), rng.random() < 0.7) for i in range(rng.randint(2, 6))]
    wide = [c.name for c in columns if c.type.kind not in ("boolean", "tinyint")]
    key = rng.sample(wide, min(len(wide), rng.choice([0, 1, 1, 2])))
    return TableSchema.of(name, columns, key)


def random_query(rng: random.Random, schema: TableSchema) -> str:
    """SELECT with any of WHERE, GROUP BY, HAVING, DISTINCT, and all supported aggregates."""
    where = f" WHERE {_condition(rng, schema)}" if rng.random() < 0.5 else ""
    kind = rng.choice(["groups", "groups", "groups", "total", "rows", "distinct"])
    if kind in ("rows", "distinct"):
        items = [_scalar(rng, rng.choice(schema.columns)) for _ in range(rng.randint(1, 3))]
        select = ", ".join(f"{item} AS o{i}" for i, item in enumerate(items))
        return f"SELECT {'DISTINCT ' if kind == 'distinct' else ''}{select} FROM {schema.name}{where}"
    aggregates = [_aggregate(rng, schema) for _ in range(rng.randint(1, 4))]
    keys = [] if kind == "total" else [_scalar(rng, rng.choice(schema.columns)) for _ in range(rng.randint(1, 2))]
    select = ", ".join([f"{item} AS o{i}" for i, item in enumerate([*keys, *aggregates])])
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    having = (
        f" HAVING {rng.choice(['COUNT(*) > 1', 'COUNT(*) % 2 = 1', 'MIN(' + schema.columns[0].name + ') IS NOT NULL'])}"
    )
    return f"SELECT {select} FROM {schema.name}{where}{group}{having if rng.random() < 0.3 else ''}"


def _aggregate(rng: random.Random, schema: TableSchema) -> str:
    numeric = [c for c in schema.columns if c.type.is_numeric]
    function = rng.choice(["COUNT", "MIN", "MAX", "STAR", "DISTINCT"] + (["SUM", "SUM", "AVG"] if numeric else []))
    if function == "STAR":
        return "COUNT(*)"
    if function in ("SUM", "AVG"):
        column = rng.choice(numeric)
        argument = column.name
        if column.type.kind in ("tinyint", "smallint", "int") and rng.random() < 0.4:
            argument = f"CAST({column.name} AS BIGINT) * 2 + 1"
        elif column.type == SqlType("double") and rng.random() < 0.4:
            argument = f"{column.name} * 0.5D"
    else:
        column = rng.choice(schema.columns)
        argument = column.name
    suffix = f" FILTER (WHERE {_condition(rng, schema)})" if rng.random() < 0.15 else ""
    call = f"COUNT(DISTINCT {argument})" if function == "DISTINCT" else f"{function}({argument})"
    return f"{call}{suffix}"


def _scalar(rng: random.Random, column: Column) -> str:
    plain = column.name
    if rng.random() < 0.6:
        return plain
    kind = column.type
    if kind.kind == "string":
        return rng.choice(
            [f"upper({plain})", f"length({plain})", f"substring({plain}, 1, 1)", f"coalesce({plain}, 'none')"]
        )
    if kind.kind in ("date", "timestamp", "timestamp_ntz"):
        return rng.choice(
            [f"year({plain})", f"month({plain})", f"date_format({plain}, 'yyyy-MM')", f"dayofmonth({plain})"]
        )
    if kind.kind == "boolean":
        return f"NOT {plain}"
    if kind.is_floating:
        return f"-{plain}"
    if kind.is_integer:
        return rng.choice(
            [f"CAST({plain} AS BIGINT) + 1", f"{plain} % 3", f"CASE WHEN {plain} > 0 THEN 'up' ELSE 'down' END"]
        )
    return f"abs({plain})"


def _condition(rng: random.Random, schema: TableSchema) -> str:
    column = rng.choice(schema.columns)
    kind, name = column.type.kind, column.name
    if rng.random() < 0.2:
        return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
    if kind == "string":
        return rng.choice([f"{name} >= 'ab'", f"{name} LIKE 'a%'", f"{name} IN ('a', 'b', '')", f"length({name}) < 3"])
    if kind == "date":
        return rng.choice([f"{name} > DATE'2024-02-28'", f"month({name}) = 2"])
    if kind in ("timestamp", "timestamp_ntz"):
        return rng.choice([f"{name} > TIMESTAMP'2024-03-01 12:00:00'", f"hour({name}) < 14"])
    if kind == "boolean":
        return rng.choice([name, f"NOT {name}", f"{name} OR {name} IS NULL"])
    return rng.choice([f"{name} > 0", f"{name} <= 1 OR {name} IS NULL", f"{name} IN (0, 1, 3)", f"NOT ({name} = 0)"])
