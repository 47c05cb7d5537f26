"""The definitions of tables and views as the commit log has them: read in one place, so that damage has one error."""

from __future__ import annotations

from typing import Any

from headrace.engine.definition import Definition
from headrace.errors import CorruptFileError
from headrace.relation.from_log import REPAIR, from_log
from headrace.relation.schema import TableSchema


def table_of(name: str, data: Any) -> TableSchema:
    """The schema of a table."""
    schema = from_log(f"the definition of table {name!r}")(TableSchema.from_json)(data)
    if schema.name != name:
        raise CorruptFileError(f"the definition of table {name!r} is of table {schema.name!r}", way_out=REPAIR)
    return schema


def view_of(name: str, data: Any) -> Definition:
    """The definition of a view."""
    return from_log(f"the definition of view {name!r}")(Definition.from_json)(data)
