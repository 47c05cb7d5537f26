"""Late rows: those older than their table's watermark. They are found before a step and set aside.

The promise of a watermark must hold for the table and all of its views at once, or they would contradict each other. So
a late row changes none of them. Nor is it lost: it is counted in the step and stored with it, as bad rows are.

An update of a row with a key is a deletion and an insertion. If one of them is late, both are, since half an update
would lose the row or have its key twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.engine.step_runner import Inputs, translating_spark_errors
from headrace.relation import kernels
from headrace.relation.change import REASON, BadRows, ChangeBatch
from headrace.relation.columns import whole
from headrace.relation.layout import TableLayout
from headrace.relation.product import ProductBatch
from headrace.relation.schema import TableSchema
from headrace.runtime.aside import Aside, AsideWriter
from headrace.runtime.spark import set_aside

Late = dict[str, Aside]
_KEY = "__late_key"
_FEW = 100_000  # late rows whose keys each task can have


@contextmanager
def without_late(
    tables: Mapping[str, TableLayout], inputs: Inputs, watermarks: Mapping[str, int], aside: AsideWriter
) -> Iterator[tuple[Inputs, Late]]:
    """Split the inputs of a step by the watermarks before it: the inputs without late rows, and these, set aside."""
    left: dict[str, ChangeBatch | ProductBatch | DataFrame] = {}
    late: Late = {}
    held: list[DataFrame] = []
    try:
        for name, given in inputs.items():
            layout, mark = tables[name], watermarks.get(name)
            if mark is None or isinstance(given, ProductBatch):  # a table with a watermark takes no product
                left[name] = given
                continue
            if isinstance(given, DataFrame):
                held.append(given := given.persist())  # it is read twice, and must not change in between
                found, left[name] = _split_frame(layout.schema, given, mark, aside)
            else:
                found, left[name] = _split_batch(layout, given, mark, aside)
            if found is not None:
                late[name] = found
        yield left, late
    finally:
        for frame in held:
            frame.unpersist()


def _split_batch(
    layout: TableLayout, batch: ChangeBatch, mark: int, aside: AsideWriter
) -> tuple[Aside | None, ChangeBatch]:
    own = _is_late(layout.schema, batch, mark)
    if not own.any():
        return None, batch
    late = _with_partners(layout, batch, own) if layout.schema.key else own
    found, (why_own, why_partner) = batch.take(late), _reasons(layout.schema, mark)
    reasons = [why_own if is_late else why_partner for is_late in own[late].tolist()]
    file = aside.write(BadRows(layout.schema.name, found.rows, found.diff, reasons).to_arrow())
    return Aside(len(found), (file,)), batch.take(~late)


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


def _split_frame(
    schema: TableSchema, frame: DataFrame, mark: int, aside: AsideWriter
) -> tuple[Aside | None, DataFrame]:
    """Split a DataFrame by tasks, which write the late rows: there may be more than the driver could take."""
    assert schema.watermark is not None
    is_late = F.coalesce(F.col(f"`{schema.watermark.column}`") < _moment(schema, mark), F.lit(False))
    late = frame.where(is_late)
    count = translating_spark_errors(late.count)
    if not count:
        return None, frame
    in_time = frame.where(~is_late)
    if schema.key:
        keys, same = _keys_of(schema, late)
        keys = F.broadcast(keys) if count <= _FEW else keys
        late, in_time = frame.join(keys, same, "left_semi"), frame.join(keys, same, "left_anti")
    own, partner = _reasons(schema, mark)
    told = late.withColumn(REASON, F.when(is_late, own).otherwise(partner))
    return translating_spark_errors(lambda: set_aside(told, schema, aside)), in_time


def _keys_of(schema: TableSchema, late: DataFrame) -> tuple[DataFrame, Column]:
    """The keys of late rows, and the condition by which a row has such a key; NULL is like NULL, as in a batch."""
    names = {f"{_KEY}{i}": F.col(f"`{name}`") for i, name in enumerate(schema.key)}
    keys = late.select(*[column.alias(name) for name, column in names.items()]).distinct()
    return keys, reduce(and_, [column.eqNullSafe(F.col(name)) for name, column in names.items()])


def _moment(schema: TableSchema, mark: int) -> Column:
    assert schema.watermark is not None
    if schema.column(schema.watermark.column).type.kind == "timestamp":
        return F.timestamp_micros(F.lit(mark))
    return F.lit(str(np.datetime64(mark, "us"))).cast("timestamp_ntz")


def _reasons(schema: TableSchema, mark: int) -> tuple[str, str]:
    """Why a row is set aside that is late itself, and why one is that shares its key with a late row."""
    assert schema.watermark is not None
    moment = str(np.datetime64(mark, "us")).replace("T", " ").removesuffix(".000000")
    own = f"{schema.watermark.column!r} is before the watermark, {moment}"
    return own, f"another change of this key is late: {own}"
