"""Late rows: those older than their table's watermark. They are found before a step and set aside.

The promise of a watermark must hold for the table and all of its views at once, or they would contradict each other. So
a late row changes none of them. Nor is it lost: it is counted in the step and stored with it, as bad rows are.

An update of a row with a key is a deletion and an insertion. If one of them is late, both are, since half an update
would lose the row or have its key twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.engine.step_runner import Inputs, translating_spark_errors
from headrace.relation import kernels
from headrace.relation.change import BadRows, ChangeBatch, change_batch
from headrace.relation.columns import whole
from headrace.relation.layout import TableLayout
from headrace.relation.schema import TableSchema, ddl

Late = dict[str, BadRows]


@contextmanager
def without_late(
    tables: Mapping[str, TableLayout], inputs: Inputs, watermarks: Mapping[str, int]
) -> Iterator[tuple[Inputs, Late]]:
    """Split the inputs of a step by the watermarks before it: the inputs without late rows, and the late rows."""
    left: dict[str, ChangeBatch | DataFrame] = {}
    late: Late = {}
    held: list[DataFrame] = []
    try:
        for name, given in inputs.items():
            layout, mark = tables[name], watermarks.get(name)
            if mark is None:
                left[name] = given
                continue
            if isinstance(given, DataFrame):
                held.append(given := given.persist())  # it is read twice, and must not change in between
                found, left[name] = _split_frame(layout.schema, given, mark)
            else:
                found, left[name] = _split_batch(layout, given, mark)
            if found is not None:
                late[name] = BadRows(name, found.rows, found.diff, _reasons(layout.schema, found, mark))
        yield left, late
    finally:
        for frame in held:
            frame.unpersist()


def _split_batch(layout: TableLayout, batch: ChangeBatch, mark: int) -> tuple[ChangeBatch | None, ChangeBatch]:
    late = _is_late(layout.schema, batch, mark)
    if not late.any():
        return None, batch
    if layout.schema.key:
        late = _with_partners(layout, batch, late)
    return batch.take(late), batch.take(~late)


def _is_late(schema: TableSchema, batch: ChangeBatch, mark: int) -> NDArray[np.bool_]:
    """Which rows are older than the watermark; a row without a time is never late."""
    assert schema.watermark is not None
    times = whole(batch.rows.column(schema.watermark.column)).cast(pa.int64())
    late = pc.fill_null(pc.less(times, mark), False)
    return np.asarray(late.to_numpy(zero_copy_only=False), dtype=bool)


def _with_partners(layout: TableLayout, batch: ChangeBatch, late: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are late, or share their key with a late row."""
    words = np.ascontiguousarray(layout.words(batch.rows)[: layout.key_width])
    order = kernels.sort_order(words)
    key_of = np.empty(len(order), np.int64)
    keys = kernels.group_sorted(words, order, key_of)
    some = np.zeros(keys, bool)
    some[key_of[late[order]]] = True
    out = np.empty(len(late), bool)
    out[order] = some[key_of]
    return out


def _split_frame(schema: TableSchema, frame: DataFrame, mark: int) -> tuple[ChangeBatch | None, DataFrame]:
    assert schema.watermark is not None
    is_late = F.coalesce(F.col(f"`{schema.watermark.column}`") < _moment(schema, mark), F.lit(False))
    late = translating_spark_errors(lambda: frame.where(is_late).toArrow())
    if not late.num_rows:
        return None, frame
    if not schema.key:
        return change_batch(schema, late), frame.where(~is_late)
    names = list(schema.key)
    keys = late.select(names).group_by(names).aggregate([])
    # With an explicit schema, because Spark would take timestamps without a zone for instants.
    partners = F.broadcast(frame.sparkSession.createDataFrame(keys, ddl([schema.column(name) for name in names])))
    late = translating_spark_errors(lambda: frame.join(partners, names, "left_semi").select(*_quoted(frame)).toArrow())
    return change_batch(schema, late), frame.join(partners, names, "left_anti").select(*_quoted(frame))


def _quoted(frame: DataFrame) -> list[str]:
    return [f"`{name}`" for name in frame.columns]


def _moment(schema: TableSchema, mark: int) -> Column:
    assert schema.watermark is not None
    if schema.column(schema.watermark.column).type.kind == "timestamp":
        return F.timestamp_micros(F.lit(mark))
    return F.lit(str(np.datetime64(mark, "us"))).cast("timestamp_ntz")


def _reasons(schema: TableSchema, found: ChangeBatch, mark: int) -> list[str]:
    assert schema.watermark is not None
    moment = str(np.datetime64(mark, "us")).replace("T", " ").removesuffix(".000000")
    own = f"{schema.watermark.column!r} is before the watermark, {moment}"
    partner = f"another change of this key is late: {own}"
    return [own if late else partner for late in _is_late(schema, found, mark).tolist()]
