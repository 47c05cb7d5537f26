"""Pipeline files that must be read, and ones that must be refused with the right finger on the right place."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.sql.pipeline import ForeignKey, Statement, TableStatement, ViewStatement, parse_pipeline, read_pipeline

ORDERS = """
-- What was ordered; a comment may hold a ; and a ' too
CREATE TABLE IF NOT EXISTS orders (
  o_orderkey BIGINT NOT NULL,
  o_custkey  BIGINT,          /* nested /* comments; */ are fine */
  `o total`  DECIMAL(15, 2),
  PRIMARY KEY (o_orderkey),
  FOREIGN KEY (o_custkey) REFERENCES customer (c_custkey)
) USING parquet OPTIONS (path 'orders/', maxFilesPerTrigger 1, changes true);

create or replace materialized view spend as
  SELECT o_custkey, sum(`o total`) AS total -- by customer;
  FROM orders WHERE note <> 'a;b' GROUP BY o_custkey
;
"""


def only(text: str) -> Statement:
    (statement,) = parse_pipeline(text, "p.sql")
    return statement


def table(columns: str, rest: str = "USING parquet") -> TableStatement:
    statement = only(f"CREATE TABLE t ({columns}) {rest}")
    assert isinstance(statement, TableStatement)
    return statement


def test_a_whole_pipeline() -> None:
    orders, spend = parse_pipeline(ORDERS, "p.sql")
    assert orders == TableStatement(
        name="orders",
        columns_ddl="o_orderkey BIGINT NOT NULL, o_custkey BIGINT, `o total` DECIMAL(15, 2)",
        key=("o_orderkey",),
        foreign_keys=(ForeignKey(("o_custkey",), "customer", ("c_custkey",)),),
        format="parquet",
        options={"path": "orders/", "maxFilesPerTrigger": "1", "changes": "true"},
        line=3,
    )
    assert orders.references == {"o_custkey": "customer"}
    assert spend == ViewStatement(
        name="spend",
        sql="SELECT o_custkey, sum(`o total`) AS total -- by customer;\n"
        "  FROM orders WHERE note <> 'a;b' GROUP BY o_custkey",
        line=11,
        replace=True,
    )


@pytest.mark.parametrize(
    ("columns", "ddl", "key", "references"),
    [
        ("id BIGINT PRIMARY KEY", "id BIGINT", ("id",), {}),
        ("id BIGINT NOT NULL PRIMARY KEY, x INT", "id BIGINT NOT NULL, x INT", ("id",), {}),
        ("a INT, b INT, PRIMARY KEY (a, b)", "a INT, b INT", ("a", "b"), {}),
        ("A INT, PRIMARY KEY (a)", "A INT", ("A",), {}),
        ("c BIGINT REFERENCES other(k)", "c BIGINT", (), {"c": "other"}),
        ("c BIGINT REFERENCES other NOT NULL", "c BIGINT NOT NULL", (), {"c": "other"}),
        ("a INT, b INT, FOREIGN KEY (a, b) REFERENCES o (x, y)", "a INT, b INT", (), {("a", "b"): "o"}),
        ("a INT, CONSTRAINT pk PRIMARY KEY (a)", "a INT", ("a",), {}),
        ("a ARRAY<STRUCT<x: INT, y: DECIMAL(3,1)>>, b INT", "a ARRAY<STRUCT<x: INT, y: DECIMAL(3,1)>>, b INT", (), {}),
        ("`primary` INT, `a``b` INT", "primary INT, `a``b` INT", (), {}),
        ("a INT COMMENT 'first, (and) last', b DATE", "a INT, b DATE", (), {}),
        ("`día` DATE", "`día` DATE", (), {}),
    ],
)
def test_columns(columns: str, ddl: str, key: tuple[str, ...], references: dict[str, str]) -> None:
    statement = table(columns)
    assert (statement.columns_ddl, statement.key, statement.references) == (ddl, key, references)


def test_a_foreign_key_of_two_columns_is_kept_whole() -> None:
    statement = table("a INT, b INT, FOREIGN KEY (a, b) REFERENCES o")
    assert statement.foreign_keys == (ForeignKey(("a", "b"), "o"),)


OTHER = "CREATE TABLE O (x INT, y INT, PRIMARY KEY (X, y)) USING csv;"


@pytest.mark.parametrize(
    ("written", "columns"),
    [("o (x, y)", ("a", "b")), ("o (Y, x)", ("b", "a")), ("o", ("a", "b")), ("u (y, x)", ("a", "b"))],
)
def test_a_foreign_key_is_put_in_the_order_of_the_key(written: str, columns: tuple[str, ...]) -> None:
    text = f"CREATE TABLE t (a INT, b INT, FOREIGN KEY (a, b) REFERENCES {written}) USING csv;"
    for statements in (parse_pipeline(text + OTHER), parse_pipeline(OTHER + text)[::-1]):
        assert isinstance(statements[0], TableStatement)
        assert statements[0].references == {columns: written.split()[0]}


@pytest.mark.parametrize("written", ["a INT REFERENCES o (x)", "a INT, b INT, FOREIGN KEY (a, b) REFERENCES o (x, z)"])
def test_a_foreign_key_to_other_columns_than_the_key_is_refused(written: str) -> None:
    with pytest.raises(PipelineError, match=r"p.sql, line 1: .* not its primary key.\n  -> Refer to its key, \(x, y\)"):
        parse_pipeline(f"CREATE TABLE t ({written}) USING csv; {OTHER}", "p.sql")


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("", {}),
        ("OPTIONS (path 'it''s here')", {"path": "it's here"}),
        (r"OPTIONS (sep '\t', quote '\'', escape '\\')", {"sep": "\t", "quote": "'", "escape": "\\"}),
        (r"OPTIONS (path r'C:\new')", {"path": r"C:\new"}),
        ('OPTIONS (path "a;b", header = TRUE)', {"path": "a;b", "header": "true"}),
        (
            "OPTIONS (kafka.bootstrap.servers 'h:9', 'subscribe' 't')",
            {"kafka.bootstrap.servers": "h:9", "subscribe": "t"},
        ),
        ("OPTIONS ()", {}),
    ],
)
def test_options(written: str, options: dict[str, str]) -> None:
    assert table("a INT", f"USING csv {written}").options == options


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "WITH x AS (SELECT ';') SELECT * FROM x",
        "(SELECT a FROM t) UNION ALL (SELECT b FROM u)",
        "SELECT `a;b`, \"c;d\", 'e\\';f', r'\\' FROM t",
        "SELECT /* ; */ a -- ;\nFROM t",
        "SELECT /*+ BROADCAST(t) */ a FROM t",
    ],
)
def test_queries_are_handed_on_verbatim(query: str) -> None:
    statement = only(f"CREATE MATERIALIZED VIEW IF NOT EXISTS v AS\n {query} \n;\n")
    assert statement == ViewStatement("v", query, 1)


@given(st.text(alphabet="ab';`\"\\-/* \n()", max_size=30))
def test_any_text_is_read_or_refused_but_never_crashes(noise: str) -> None:
    text = f"CREATE MATERIALIZED VIEW v AS SELECT {noise}"
    with suppress(PipelineError):
        parse_pipeline(text)


@given(st.text(min_size=1))
def test_any_string_survives_as_an_option(value: str) -> None:
    written = value.replace("\\", "\\\\").replace("'", "''")
    assert table("a INT", f"USING csv OPTIONS (path '{written}')").options == {"path": value}


VIEW = "CREATE MATERIALIZED VIEW v AS SELECT 1;\n"

# Each: the text, where the caret must stand (the text from there on), and words of the message and the way out.
REFUSED = [
    ("DROP TABLE t", "DROP", "no DROP statement", "CREATE TABLE"),
    (VIEW + "INSERT INTO t VALUES (1)", "INSERT", "line 2", "CREATE TABLE"),
    ("CREATE VIEW v AS SELECT 1", "VIEW", "materialized", "CREATE MATERIALIZED VIEW"),
    ("CREATE FUNCTION f AS 'x'", "FUNCTION", "cannot be created", "CREATE TABLE"),
    ("CREATE MATERIALIZED TABLE t", "TABLE", "expected VIEW", "MATERIALIZED VIEW"),
    ("CREATE OR REPLACE TABLE t (a INT) USING csv", "TABLE", "cannot be replaced", "--location"),
    ("CREATE TABLE IF EXISTS t (a INT)", "EXISTS", "expected NOT", "IF NOT EXISTS"),
    ("CREATE TABLE (a INT) USING csv", "(a INT)", "expected the table's name", "backquotes"),
    ("CREATE TABLE db.t (a INT) USING csv", ".t", "one part", "without a qualifier"),
    ("CREATE TABLE t USING csv", "USING", "expected (", "columns of t"),
    ("CREATE TABLE t () USING csv", ") USING", "expected a column's name", "backquotes"),
    ("CREATE TABLE t (PRIMARY KEY (a)) USING csv", "(PRIMARY", "at least one column", "name TYPE"),
    ("CREATE TABLE t (a) USING csv", ") USING", "type of column a", "name TYPE"),
    ("CREATE TABLE t (a INT b INT) USING csv", "b INT", "did not expect b", "commas"),
    ("CREATE TABLE t (a INT,) USING csv", ") USING", "expected a column's name", "backquotes"),
    ("CREATE TABLE t (a INT", "", "did not expect the end", "commas"),
    ("CREATE TABLE t (a INT; b INT)", "; b", "did not expect ;", "commas"),
    ("CREATE TABLE t (a DECIMAL(1, b INT", "DECIMAL", "never closed", "name TYPE"),
    ("CREATE TABLE t (a INT, A INT) USING csv", "A INT) U", "there twice", "rename"),
    ("CREATE TABLE t (a INT NULL) USING csv", "NULL", "did not expect NULL", "NOT NULL"),
    ("CREATE TABLE t (a INT NOT) USING csv", ") USING", "expected NULL", "NOT NULL"),
    ("CREATE TABLE t (a INT UNIQUE) USING csv", "UNIQUE", "UNIQUE is not known", "Leave it out"),
    ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a)) USING csv", "PRIMARY KEY (a", "one primary key", "(a, b)"),
    ("CREATE TABLE t (a INT, PRIMARY KEY (b)) USING csv", ") USING", "no column b", "are a"),
    ("CREATE TABLE t (a INT, PRIMARY KEY a) USING csv", "a) USING", "expected (", "key columns"),
    ("CREATE TABLE t (a INT, FOREIGN KEY (a)) USING csv", ") USING", "expected REFERENCES", "REFERENCES table"),
    ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES o (x, y)) USING csv", "(x, y)", "1 columns", "both sides"),
    ("CREATE TABLE t (a INT, CONSTRAINT c CHECK (a > 1)) USING csv", "CHECK", "not known", "PRIMARY KEY"),
    ("CREATE TABLE t (a INT)", "", "has no source", "USING parquet"),
    ("CREATE TABLE t (a INT) LOCATION 'x'", "LOCATION", "no LOCATION", "OPTIONS (path"),
    ("CREATE TABLE t (a INT) USING csv AS SELECT 1", "AS", "no AS clause", "MATERIALIZED VIEW"),
    ("CREATE TABLE t (a INT) USING csv PARTITIONED BY (a)", "PARTITIONED", "did not expect", "OPTIONS"),
    ("CREATE TABLE t (a INT) USING csv OPTIONS path 'x'", "path", "expected (", "OPTIONS (path"),
    ("CREATE TABLE t (a INT) USING csv OPTIONS (path)", ")", "value of option path", "OPTIONS (path"),
    ("CREATE TABLE t (a INT) USING csv OPTIONS (path folder)", "folder", "in quotes", "OPTIONS (path"),
    ("CREATE TABLE t (a INT) USING csv OPTIONS (a '1' b '2')", "b '2'", "expected , or )", "OPTIONS"),
    ("CREATE TABLE t (a INT) USING csv OPTIONS (a '1', A '2')", "A '2'", "twice", "Keep one"),
    ("CREATE TABLE t (a INT) USING csv OPTIONS ('1'", "", "value of option 1", "OPTIONS"),
    ("CREATE MATERIALIZED VIEW v SELECT 1", "SELECT", "expected AS", "SELECT a AS b"),
    ("CREATE MATERIALIZED VIEW v (a) AS SELECT 1", "(a)", "expected AS", "SELECT a AS b"),
    ("CREATE MATERIALIZED VIEW v AS DELETE FROM t", "DELETE", "expected a query", "AS SELECT"),
    ("CREATE MATERIALIZED VIEW v AS;", ";", "expected a query", "AS SELECT"),
    (VIEW + "CREATE TABLE V (a INT) USING csv", "V (a", "already defined on line 1", "name of its own"),
    (VIEW + "CREATE MATERIALIZED VIEW w AS SELECT 'x;", "'x;", "string is never closed", "Close it with '"),
    ("CREATE MATERIALIZED VIEW `v AS SELECT 1", "`v", "name is never closed", "Close it with `"),
    ("CREATE MATERIALIZED VIEW v /* AS /* SELECT */ 1", "/* AS", "comment is never closed", "*/"),
]


@pytest.mark.parametrize(("text", "pointed", "what", "way_out"), REFUSED, ids=[case[0][-40:] for case in REFUSED])
def test_refused(text: str, pointed: str, what: str, way_out: str) -> None:
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text, "p.sql")
    error = caught.value
    message, shown, caret = error.what.split("\n")
    assert message.startswith("p.sql, line ")
    assert what in error.what
    assert way_out in error.way_out
    assert shown[caret.index("^") :].startswith(pointed.split("\n")[0])
    if not pointed:
        assert len(shown) == caret.index("^"), "the end is meant"


def test_the_message_as_a_user_sees_it() -> None:
    text = VIEW + "CREATE TABLE t (\n\ta INT,\n\tb DECIMAL(10,2) UNIQUE\n) USING csv;"
    with pytest.raises(PipelineError) as caught:
        parse_pipeline(text, "shop.sql")
    assert str(caught.value) == (
        "shop.sql, line 4: UNIQUE is not known here\n"
        "  4 | \tb DECIMAL(10,2) UNIQUE\n"
        "      \t                ^\n"
        "  -> Leave it out. A column is written: name TYPE [NOT NULL] [PRIMARY KEY] [REFERENCES table], "
        "and columns are parted by commas."
    )


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing\n;;", "/* */"])
def test_an_empty_pipeline(text: str) -> None:
    with pytest.raises(PipelineError, match="no statements"):
        parse_pipeline(text, "p.sql")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "p.sql"
    file.write_bytes(b"\xef\xbb\xbf" + VIEW.replace("\n", "\r\n").encode())
    assert read_pipeline(file) == (ViewStatement("v", "SELECT 1", 1),)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(PipelineError, match="not UTF-8"):
        read_pipeline(file)
    with pytest.raises(PipelineError, match="cannot be read"):
        read_pipeline(tmp_path / "missing.sql")
