"""The definitions of tables and views as the commit log has them: read in one place, so that damage has one error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.engine.definition import Definition
from headrace.errors import CorruptFileError
from headrace.relation.schema import TableSchema
from headrace.runtime.log import REPAIR

T = TypeVar("T")


def table_of(name: str, data: Any) -> TableSchema:
    """The schema of a table."""
    schema = _read("table", name, TableSchema.from_json, data)
    if schema.name != name:
        raise CorruptFileError(f"the definition of table {name!r} is of table {schema.name!r}", way_out=REPAIR)
    return schema


def view_of(name: str, data: Any) -> Definition:
    """The definition of a view."""
    return _read("view", name, Definition.from_json, data)


def _read(what: str, name: str, read: Callable[[Any], T], data: Any) -> T:
    try:
        return read(data)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CorruptFileError(
            f"the definition of {what} {name!r} in the log cannot be read: {type(error).__name__}: {error}",
            way_out=REPAIR,
        ) from error
