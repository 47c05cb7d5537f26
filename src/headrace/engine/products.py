"""Which products a step takes in their parts: refused ones are refused before anything is applied.

A product cannot be stored as rows without multiplying it out, nor can the key of a row be looked up. So a table takes
products if it keeps no rows, and if all views over it can take them. Whoever wants the rows says so: `to_arrow()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from headrace.engine.inputs import input_of
from headrace.engine.modes import ByKey, Mode, by_key
from headrace.engine.programs import Programs
from headrace.engine.resolving import Given
from headrace.errors import BadRowsError
from headrace.relation.change import ChangeBatch
from headrace.relation.outer import rows_of
from headrace.relation.product import Product, ProductBatch, product_of
from headrace.relation.schema import TableSchema
from headrace.runtime.program import ViewTask, why_catalyst


def inputs_of(
    schemas: Mapping[str, TableSchema], changes: Mapping[str, Any], modes: Mapping[str, Mode] | None = None
) -> Given:
    """Check what a user gave, in any of the forms that a change may have."""
    return {name: _input_of(schemas[name], (modes or {}).get(name, Mode()), given) for name, given in changes.items()}


def _input_of(schema: TableSchema, mode: Mode, given: object) -> ChangeBatch | ProductBatch | DataFrame | ByKey:
    if not mode.is_plain:
        return by_key(schema, mode, given)
    if isinstance(given, Product):
        return product_of(schema, given)
    return input_of(schema, rows_of(schema, given))


def check_products(programs: Programs, schemas: Mapping[str, TableSchema], inputs: Given) -> None:
    """Refuse products that would have to be multiplied out, with all reasons."""
    for name, given in inputs.items():
        if isinstance(given, ProductBatch):
            reasons = [*_of_table(schemas[name]), *_of_views(programs, name)]
            if reasons:
                raise BadRowsError(
                    f"table {name!r} cannot take a product in its parts: {'; '.join(reasons)}",
                    way_out=f"multiply it out, if its {given.rows:,} rows are not too many: apply change.to_arrow()",
                )


def _of_table(schema: TableSchema) -> Iterator[str]:
    if schema.kept:
        yield "it keeps its rows (keep_rows=False would keep none)"
    if schema.watermark is not None:
        yield "it has a watermark, by which every row is judged"


def _of_views(programs: Programs, table: str) -> Iterator[str]:
    told = set()
    for task in programs.table_task(table).views:
        reason = _of_view(task)
        if reason and task.name not in told:
            told.add(task.name)
            yield f"view {task.name!r} takes rows: {reason}"


def _of_view(task: ViewTask) -> str:
    if task.waits:
        return "it has a goal, so changes wait for it, and they wait as entries"
    if task.kernel.product_refusal:
        return task.kernel.product_refusal
    found = why_catalyst(task.side)
    return "" if found is None else f"Catalyst evaluates {found}, over whole rows"
