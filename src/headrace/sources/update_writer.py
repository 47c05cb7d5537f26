"""From change batches to lines of updates: whole columns become text and are joined, none row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.datasets.windows import POSITION
from headrace.errors import BadRowsError, SchemaError
from headrace.relation.schema import DIFF
from headrace.sources.update_form import UpdateForm, is_text


def text_of(form: UpdateForm, batch: Mapping[str, pa.Table]) -> Iterator[pa.Buffer]:
    """Write a change batch as text, in pieces: table after table, or by a column `__position` if all have it."""
    texts, positions = [], []
    for name, changes in batch.items():
        text, rows = _lines(form, name, changes)
        texts.append(text)
        if POSITION in changes.column_names:
            positions.append(changes[POSITION].to_numpy()[rows])
    if not texts:
        return
    text = pa.chunked_array(texts)
    if len(positions) == len(texts):
        text = text.take(pa.array(np.argsort(np.concatenate(positions), kind="stable")))
    for chunk in text.chunks:
        if len(chunk):
            _, offsets, data = chunk.buffers()
            bounds = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
            yield data.slice(bounds[0], bounds[-1] - bounds[0])


def _lines(form: UpdateForm, name: str, changes: pa.Table) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the lines of a table's changes, and the row that each is of; a multiplicity of 2 makes two lines."""
    if name not in form.schemas:
        raise SchemaError(f"table {name!r} has no schema", way_out="pass its columns in schemas=... and codes=...")
    schema = form.schemas[name]
    missing = [column for column in schema.names if column not in changes.column_names]
    if missing:
        raise BadRowsError(
            f"table {name!r} has no column {', '.join(missing)}", way_out=f"give {', '.join(schema.names)}"
        )
    diff = changes[DIFF].to_numpy() if DIFF in changes.column_names else np.ones(changes.num_rows, np.int64)
    signs = pa.array(["-", "+"], pa.large_string()).take(pa.array((diff > 0).astype(np.int8)))
    first, *others = (_fields(name, field, changes[field.name]) for field in schema)
    glued = pc.binary_join_element_wise(signs, _text(form.code(name)), first, _text(""))
    lines = pc.binary_join_element_wise(glued, *others, _text("|")) if others else glued
    lines = pc.binary_join_element_wise(lines, _text("\n"), _text(""))
    rows = np.repeat(np.arange(len(diff)), np.abs(diff))
    return (lines if (np.abs(diff) == 1).all() else lines.take(pa.array(rows))), rows


def _fields(table: str, field: pa.Field, column: pa.ChunkedArray) -> pa.Array:
    """Return the values of a column as texts, or refuse what could not be read back."""
    try:
        fields = column.cast(field.type).combine_chunks().cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadRowsError(
            f"table {table!r}, column {field.name!r}: {column.type} given, {field.type} wanted",
            way_out="cast the column, or give its type in schemas=...",
        ) from error
    what = ""
    if not field.nullable and fields.null_count:
        what = "NULL, which it may not be"
    elif is_text(field.type):
        if pc.any(pc.match_substring_regex(fields, r"[|\r\n]")).as_py():
            what = "a text with a | or a line's end in it"
        elif field.nullable and pc.any(pc.equal(fields, "")).as_py():
            what = "an empty text, which would be read as NULL"
    if what:
        raise BadRowsError(
            f"table {table!r}, column {field.name!r} has {what}",
            way_out="replace such values, or exchange the table as Parquet files",
        )
    return fields.fill_null("")


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())
