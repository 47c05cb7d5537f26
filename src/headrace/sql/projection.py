"""Catalyst expressions over Arrow rows, evaluated in the driver's JVM without a Spark job.

Planning and scheduling a job takes a tenth of a second, however few rows it is for. A step that the driver runs anyway
hands its rows to the very projection that Spark generates from the expressions: rows go in as one Arrow stream and
values come back as another, in a number of calls that does not depend on the rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from headrace.relation.columns import whole
from headrace.relation.types import SqlType
from headrace.sql.jvm import Catalyst, Jvm, items, kind

_ROWS = 100_000  # at a time, because the JVM and py4j hold several copies of them
_NO_LIMIT = 2**62  # rows, and bytes, per batch of the answer: there is one batch


@dataclass(frozen=True)
class Projection:
    """Expressions over columns of some types, compiled once and evaluated over any number of batches.

    Projections hold buffers of their own: one must not be evaluated by two threads at once.
    """

    catalyst: Catalyst
    project: Jvm  # the expressions, over the attributes of `inputs`
    inputs: tuple[tuple[str, str, Jvm], ...]  # name and type of each column, and the attribute that stands for it

    def __call__(self, rows: pa.Table) -> list[pa.Array]:
        """The values of each expression in `rows`, which has the inputs by name; errors are Spark's."""
        if rows.num_rows == 0 or not self._types:
            return [pa.array([], type) for type in self._types]
        parts = [self._values(rows.slice(at, _ROWS)) for at in range(0, rows.num_rows, _ROWS)]
        return parts[0] if len(parts) == 1 else [pa.concat_arrays(values) for values in zip(*parts, strict=True)]

    def _values(self, rows: pa.Table) -> list[pa.Array]:
        with self.catalyst.active(), self._projected(_stream(self._given(rows))) as answer:
            table = pa.ipc.open_stream(answer).read_all()
        return [whole(column).cast(type) for column, type in zip(table.columns, self._types, strict=True)]

    @contextmanager
    def _projected(self, stream: bytes) -> Iterator[pa.Buffer]:
        """The rows of a stream, projected to the stream that the JVM writes into a file.

        A file, because py4j gives bytes back as text, in small packets that wait for each other: 40 ms for 100 KB.
        """
        jvm, arrow = self.catalyst.jvm, self._arrow
        rows = arrow.fromIPCStream(stream)._1()
        projected = rows
        for projection in self._stages:
            projected = projected.map(projection)
        batches = arrow.toBatchWithSchemaIterator(projected, self._schema, _NO_LIMIT, _NO_LIMIT, "UTC", False, True)
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            path = Path(folder) / "answer"
            file = jvm.java.io.DataOutputStream(jvm.java.io.FileOutputStream(str(path)))
            try:
                jvm.org.apache.spark.api.python.PythonRDD.writeIteratorToStream(batches, file)
            finally:
                file.close()
                batches.close()
                rows.close()
            yield pa.py_buffer(path.read_bytes())[4:]  # without the length that stands before the batch

    @property
    def _arrow(self) -> Jvm:
        return getattr(getattr(self.catalyst.jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters$"), "MODULE$")

    def _given(self, rows: pa.Table) -> pa.Table:
        if not self.inputs:  # constants: a stream without columns would have no rows
            return pa.table({"row": pa.nulls(rows.num_rows, pa.bool_())})
        schema = pa.schema([(name, SqlType.parse(type).arrow) for name, type, _ in self.inputs])
        return rows.select(schema.names).cast(schema)

    @cached_property
    def _types(self) -> list[pa.DataType]:
        outputs = items(self.project.output())
        return [SqlType.parse(output.dataType().simpleString()).arrow for output in outputs]

    @cached_property
    def _schema(self) -> Jvm:
        return self._over_any_rows.schema()

    @cached_property
    def _over_any_rows(self) -> Jvm:
        """The expressions over columns in which a NULL may be: rows are judged only after they are evaluated."""
        new = [self.catalyst.attribute(name, old.dataType(), True) for name, _, old in self.inputs]
        pairs = [(old, attribute) for (_, _, old), attribute in zip(self.inputs, new, strict=True)]
        return self.catalyst.project(self.catalyst.rewrite(self.project, pairs), self.catalyst.local_relation(new))

    @cached_property
    def _stages(self) -> Sequence[Jvm]:
        """Generated projections, each over the rows of the one before it; the optimizer makes more than one of some."""
        plan, made = self.catalyst.optimized(self._over_any_rows), list[Jvm]()
        while kind(plan) == "Project":
            made.insert(0, self.catalyst.generated(plan))
            plan = plan.child()
        assert kind(plan) == "LocalRelation", plan.toString()
        return made


def _stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()
