"""How many rows tables have when a view is planned: those that are there, or those that are expected."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.relation.schema import TableSchema


def known_rows(table: TableSchema, rows: Mapping[str, int]) -> int:
    """The rows that a table has or is expected to have, whichever are more; 0 where nothing is known."""
    return max(rows.get(table.name, 0), table.expected_rows or 0)


def sizes(sources: Mapping[str, str], tables: Mapping[str, TableSchema], rows: Mapping[str, int]) -> dict[str, int]:
    """The rows of each source, by the table that it is of; sources of which nothing is known are left out."""
    found = {source: known_rows(tables[table], rows) for source, table in sources.items()}
    return {source: size for source, size in found.items() if size}
