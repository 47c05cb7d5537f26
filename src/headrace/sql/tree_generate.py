"""Rows that become several (`Generate` in an optimized plan), as streams: one for each row that a row becomes.

`EXPLODE(ARRAY(x, y))`, `STACK` and their like say in the query how many rows a row becomes. Each of these is a
projection of that row, so together they are a UNION ALL, which needs no operator. How long an array of a column is, no
query says: such functions are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sql.jvm import Jvm, identity, items, kind
from headrace.sql.tree_streams import Stream

if TYPE_CHECKING:
    from headrace.sql.tree_reader import TreeReader

_MOST = 1_000  # rows that a row may become: each is a feed of the next operator


def read_generate(reader: TreeReader, node: Jvm, needed: set[int]) -> list[Stream]:
    """Read a table function over the rows of a plan; the columns below stay beside what it gives."""
    generator, outputs = node.generator(), items(node.generatorOutput())
    if kind(generator) == "ReplicateRows":
        return _replicated(reader, node)
    rows = _rows(reader, generator)
    if rows is None or len(rows) > _MOST:
        reader.refusals.refuse_operator(node)
    if not rows and node.outer():
        rows = [[reader.catalyst.literal(None, output.dataType()) for output in outputs]]
    wanted = [i for i, output in enumerate(outputs) if identity(output) in needed]
    read = reader.referenced(row[i] for row in rows for i in wanted)
    given = {identity(output) for output in outputs}
    below = reader.streams(node.child(), (needed - given) | read)
    return [
        Stream(
            stream.producer,
            stream.meaning | {identity(outputs[i]): reader.resolve(row[i], stream) for i in wanted},
            stream.filters,
            stream.times,
        )
        for row in rows
        for stream in below
    ]


def _replicated(reader: TreeReader, node: Jvm) -> list[Stream]:
    """INTERSECT ALL and EXCEPT ALL: every row as often as its first column says."""
    times, *values = items(node.generator().children())
    below = reader.streams(node.child(), reader.referenced([times, *values]))
    outputs = items(node.generatorOutput())
    out = []
    for stream in below:
        meaning = {identity(a): reader.resolve(v, stream) for a, v in zip(outputs, values, strict=True)}
        if stream.times is not None:
            reader.refusals.refuse_operator(node)
        out.append(Stream(stream.producer, meaning, stream.filters, reader.resolve(times, stream)))
    return out


def _rows(reader: TreeReader, generator: Jvm) -> list[list[Jvm]] | None:
    """The rows that a generator makes of each row, as expressions; None if the query does not say how many."""
    name = kind(generator)
    if name == "Stack":
        return _stacked(reader, generator)
    if name == "Inline":
        found = generator.child()
        structs = items(found.children()) if kind(found) == "CreateArray" else None
        if structs is None or any(kind(one) != "CreateNamedStruct" for one in structs):
            return None
        return [items(one.valExprs()) for one in structs]
    if name not in ("Explode", "PosExplode"):
        return None
    rows = _elements(reader, generator.child())
    if rows is None or name == "Explode":
        return rows
    number = reader.catalyst.type("integer")
    return [[reader.catalyst.literal(i, number), *row] for i, row in enumerate(rows)]


def _elements(reader: TreeReader, collection: Jvm) -> list[list[Jvm]] | None:
    """The elements of an array, or the entries of a map, that the query lists; None for all others."""
    name = kind(collection)
    if name == "CreateArray":
        return [[element] for element in items(collection.children())]
    if name == "CreateMap":
        # A key that comes twice is an error in Spark; which keys are equal is not known here, unless they are literals.
        keys = items(collection.keys())
        if any(kind(key) != "Literal" for key in keys) or len({str(key.sql()) for key in keys}) < len(keys):
            return None
        return [[key, value] for key, value in zip(keys, items(collection.values()), strict=True)]
    is_array = name == "Literal" and kind(collection.dataType()) == "ArrayType" and collection.value() is not None
    if not is_array:
        return None
    array, element = collection.value(), collection.dataType().elementType()
    ordinals = (reader.catalyst.literal(i, reader.catalyst.type("integer")) for i in range(array.numElements()))
    build, empty = reader.catalyst.expressions, reader.catalyst.jvm.org.apache.spark.sql.catalyst.InternalRow.empty()
    literal = reader.catalyst.jvm.org.apache.spark.sql.catalyst.expressions.Literal
    return [[literal.create(build.GetArrayItem(collection, at, False).eval(empty), element)] for at in ordinals]


def _stacked(reader: TreeReader, generator: Jvm) -> list[list[Jvm]]:
    """The rows of STACK(n, ...): what is missing in the last one is NULL."""
    first, *values = items(generator.children())
    rows, types = int(first.value()), [field.dataType() for field in items(generator.elementSchema().toSeq())]
    width = len(types)
    missing = [reader.catalyst.literal(None, type) for type in types]
    return [
        [*values[width * i : width * (i + 1)], *missing[len(values[width * i : width * (i + 1)]) :]]
        for i in range(rows)
    ]
