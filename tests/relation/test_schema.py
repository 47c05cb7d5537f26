"""Definitions of tables: what is accepted, and how what is not is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headrace.errors import SchemaError
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType, sql_type

ID, NAME = Column("id", SqlType("bigint")), Column("name", SqlType("string"))
KINDS = ["tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp", "timestamp_ntz"]
KINDS += ["boolean", "decimal(1,0)", "decimal(38,38)", "decimal(12,2)"]


def test_key_columns_become_not_null_and_others_stay_as_they_are():
    schema = TableSchema.of("t", [ID, NAME, Column("n", SqlType("int"), nullable=False)], key=["id"])
    assert [column.nullable for column in schema.columns] == [False, True, False]
    assert schema.arrow == pa.schema(
        [pa.field("id", pa.int64(), False), pa.field("name", pa.large_string()), pa.field("n", pa.int32(), False)]
    )


@pytest.mark.parametrize(
    ("name", "columns", "key", "references", "message"),
    [
        ("t", [], None, None, "table 't' has no columns"),
        ("t", [ID, ID], None, None, "has column 'id' twice"),
        ("t", [ID, Column("ID", SqlType("int"))], None, None, "twice"),
        ("t", [Column("__diff", SqlType("int"))], None, None, "'__diff' begins with two underscores"),
        ("t", [ID], "nope", None, "key column 'nope' is not one of its columns"),
        ("t", [ID], ["id", "id"], None, "repeats a column"),
        ("t", [Column(f"c{i}", SqlType("int")) for i in range(65)], [f"c{i}" for i in range(65)], None, "more than 64"),
        ("t", [ID], None, {"nope": "u"}, "references column 'nope' is not one of its columns"),
        ("t", [ID, NAME], None, {("id", "nope"): "u"}, "references column 'nope' is not one of its columns"),
        ("t", [ID, NAME], None, {("id", "id"): "u"}, "repeats one"),
        ("t", [ID, NAME], None, {(): "u"}, "has no column"),
        ("", [ID], None, None, "table name '' is not a plain identifier"),
        ("1t", [ID], None, None, "not a plain identifier"),
        ("t;drop", [ID], None, None, "not a plain identifier"),
        ("../t", [ID], None, None, "not a plain identifier"),
        ("t\n", [ID], None, None, "not a plain identifier"),
        ("t" * 129, [ID], None, None, "not a plain identifier"),
    ],
)
def test_a_definition_that_cannot_be_right_is_refused_when_it_is_made(name, columns, key, references, message):
    with pytest.raises(SchemaError) as caught:
        TableSchema.of(name, columns, key, references)
    assert message in str(caught.value)
    assert caught.value.way_out


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_survives_the_commit_log(kind):
    columns = [ID, Column("x", SqlType.parse(kind), nullable=False), Column("y", SqlType.parse(kind))]
    links = {"y": "u", ("y", "x"): "w", "x": "v"}
    schema = TableSchema.of("t", columns, key=["id"], references=links, static=True, expected_rows=1_000)
    stored = TableSchema.from_json(json.loads(json.dumps(schema.to_json())))
    assert stored == schema
    assert stored.expected_rows == 1_000


def test_references_of_one_column_and_of_several():
    columns = [ID, NAME, Column("n", SqlType("int"))]
    schema = TableSchema.of("t", columns, references={("n", "id"): "u", ("name",): "v", "id": "u"})
    assert dict(schema.references) == {"id": "u", ("n", "id"): "u", "name": "v"}
    assert schema.foreign_keys == ((("id",), "u"), (("n", "id"), "u"), (("name",), "v"))
    assert schema == TableSchema.of("t", columns, references={"id": "u", "name": "v", ("n", "id"): "u"})
    assert schema != TableSchema.of("t", columns, references={"id": "u", "name": "v", ("id", "n"): "u"})


def test_a_definition_of_an_older_location_is_read():
    columns = [["id", "bigint", False], ["name", "string", True]]
    old = {"name": "t", "columns": columns, "key": ["id"], "references": {"name": "u"}}
    schema = TableSchema.from_json(old)
    assert schema == TableSchema.of("t", [ID, NAME], "id", {"name": "u"})
    assert (schema.static, schema.kept, schema.expected_rows) == (False, True, None)


def test_the_expected_rows_are_a_hint_and_no_part_of_what_a_table_is():
    assert TableSchema.of("t", [ID], expected_rows=5) == TableSchema.of("t", [ID])
    for wrong in (-1, 1.5, True, "many"):
        with pytest.raises(SchemaError, match="is no number of rows"):
            TableSchema.of("t", [ID], expected_rows=wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_is_read_from_its_spelling_and_from_arrow(kind):
    parsed = SqlType.parse(kind)
    assert str(parsed) == kind
    assert SqlType.parse(f" {kind.upper()} ") == parsed
    assert sql_type(parsed.arrow) == parsed


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("INTEGER", "int"),
        ("long", "bigint"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("REAL", "float"),
        ("bool", "boolean"),
        ("DECIMAL", "decimal(10,0)"),
        ("DEC(7)", "decimal(7,0)"),
        ("numeric( 5 , 2 )", "decimal(5,2)"),
    ],
)
def test_synonyms_are_understood(text, kind):
    assert str(SqlType.parse(text)) == kind


@pytest.mark.parametrize(
    "text", ["", "blob", "decimal(39,0)", "decimal(0,0)", "decimal(5,6)", "decimal(5,-1)", "int(4)", "array<int>"]
)
def test_a_type_that_is_not_supported_is_refused_with_those_that_are(text):
    with pytest.raises(SchemaError, match=r"is not supported\n  -> use one of TINYINT"):
        SqlType.parse(text)


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int32()), pa.uint8(), pa.time64("us")])
def test_an_arrow_type_without_a_sql_type_is_refused(kind):
    with pytest.raises(SchemaError, match="is not supported"):
        sql_type(kind)
