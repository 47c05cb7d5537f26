"""TPC-H's queries that read one table or join along foreign keys: as a view has them, and as DuckDB answers them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

Row = tuple[Any, ...]

FOLDER = Path(__file__).parents[1] / "fixtures" / "tpch"
QUERIES = (1, 3, 5, 6, 7, 8, 9, 10, 12, 14, 18, 19)
LIMITED = {3: 10, 10: 20, 18: 100}

# DuckDB divides decimals as doubles. So it is asked for both sides, and the quotient is taken here, as Spark takes it.
RATIOS = {
    1: [(f"sum({column})", "count(*)", f"avg({column})") for column in ("l_quantity", "l_extendedprice", "l_discount")],
    8: [("sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END)", "sum(volume)", "")],
    14: [
        (
            "100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)",
            "sum(l_extendedprice * (1 - l_discount))",
            "",
        )
    ],
}


def query_text(number: int) -> str:
    """The text of a query, as its fixture has it."""
    text = (FOLDER / f"q{number}.sql").read_text()
    # At a small scale hardly an order has more than 300 pieces, and LIMIT 100 is to cut something off.
    return text.replace("sum(l_quantity) > 300", "sum(l_quantity) > 150") if number == 18 else text


@dataclass(frozen=True)
class Query:
    """One query: its text as a view has it, without its LIMIT, and as DuckDB gets it."""

    number: int

    @property
    def view(self) -> str:
        return f"q{self.number}"

    @property
    def unlimited(self) -> str:
        return re.sub(r"\nLIMIT \d+\s*\Z", "\n", query_text(self.number))

    @property
    def duckdb(self) -> str:
        text = " ".join(self.unlimited.split())
        for over, under, quotient in RATIOS.get(self.number, []):
            asked = quotient or f"{over} / {under}"
            assert asked in text
            text = text.replace(asked, f"{{'over': {over}, 'under': {under}}}")
        return text

    def in_order(self, names: list[str], rows: list[Row]) -> list[Row]:
        """Sort rows as the query's ORDER BY says; ties stay as they are."""
        for name, down in reversed(self._order()):
            at = names.index(name)
            rows = sorted(rows, key=lambda row: row[at], reverse=down)
        return rows

    def order_values(self, names: list[str], rows: list[Row]) -> list[Row]:
        """What rows are sorted by: all that ORDER BY promises of their order."""
        at = [names.index(name) for name, _ in self._order()]
        return [tuple(row[i] for i in at) for row in rows]

    def _order(self) -> list[tuple[str, bool]]:
        found = re.search(r"^ORDER BY (.+)$", self.unlimited, re.MULTILINE)
        items = found[1].split(", ") if found else []
        return [(item.removesuffix(" DESC"), item.endswith(" DESC")) for item in items]


def answers_by_duckdb(rows: dict[str, pa.Table]) -> dict[int, list[Row]]:
    with duckdb.connect() as connection:
        for name, table in rows.items():
            connection.register(name, table)
        found = {number: connection.sql(Query(number).duckdb).fetchall() for number in QUERIES}
    return {number: [tuple(map(quotient, row)) for row in answer] for number, answer in found.items()}


def quotient(value: Any) -> Any:
    """Divide both sides of a ratio as Spark does decimals: to six digits, halves away from zero."""
    if not isinstance(value, dict):
        return value
    if value["over"] is None:
        return None
    with localcontext(prec=60):
        return (value["over"] / Decimal(value["under"])).quantize(Decimal("1e-6"), ROUND_HALF_UP)


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
