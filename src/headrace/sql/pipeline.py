"""Read a pipeline file: which tables change, where their changes come from, and which views to keep.

`headrace run` takes plain SQL text, so that a pipeline can be written without Python. Two statements exist, `CREATE
TABLE` with its source and `CREATE MATERIALIZED VIEW`; both become immutable definitions. Reading runs nothing: a
view's query is handed on as it is written, and Spark itself judges it when the view is created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import PipelineError
from headrace.relation.duration import Duration
from headrace.sql.clauses import ForeignKey, columns, options
from headrace.sql.cursor import Cursor
from headrace.sql.goal_text import goal_clause, idle_clause
from headrace.sql.lexer import Kind, Token, line_of, tokens
from headrace.thrifty.goal import Freshness


@dataclass(frozen=True)
class TableStatement:
    """A changing table, and the streaming source of its changes."""

    name: str
    columns_ddl: str
    key: tuple[str, ...]
    foreign_keys: tuple[ForeignKey, ...]
    format: str
    options: dict[str, str]
    line: int

    @property
    def references(self) -> dict[str | tuple[str, ...], str]:
        """The foreign keys, as column -> table, or columns -> table."""
        return {key.columns[0] if len(key.columns) == 1 else key.columns: key.table for key in self.foreign_keys}


@dataclass(frozen=True)
class ViewStatement:
    """A view to keep; `replace` allows an existing view of this name to be dropped for it."""

    name: str
    sql: str
    line: int
    replace: bool = False
    goal: Freshness | None = None
    idle_after: Duration | None = None


Statement = TableStatement | ViewStatement

_FORMS = "A pipeline has CREATE TABLE ... USING ... and CREATE MATERIALIZED VIEW ... AS SELECT ... statements."
_OTHER_CLAUSES = {
    "LOCATION": "Name the folder in the options: OPTIONS (path '...').",
    "AS": "A source fills a table; to keep a query's result, write CREATE MATERIALIZED VIEW name AS SELECT ...",
}


def read_pipeline(path: str | Path) -> tuple[Statement, ...]:
    """Read the statements of a pipeline file, in their order.

    Raises
    ------
    PipelineError
        The file cannot be read, or has a statement that a pipeline cannot have.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise PipelineError(
            f"{path} is not UTF-8 text (byte {error.start}).", way_out="Save the file as UTF-8."
        ) from error
    except OSError as error:
        raise PipelineError(
            f"The pipeline file {path} cannot be read: {error.strerror}.",
            way_out="Give the path of a file of SQL statements.",
        ) from error
    return parse_pipeline(text, str(path))


def parse_pipeline(text: str, file: str = "pipeline") -> tuple[Statement, ...]:
    """Parse the text of a pipeline; `file` is its name in errors.

    >>> parse_pipeline("CREATE MATERIALIZED VIEW total AS SELECT count(*) FROM sales;")
    (ViewStatement(name='total', sql='SELECT count(*) FROM sales', line=1, replace=False, goal=None, idle_after=None),)
    """
    statements: list[Statement] = []
    lines: dict[str, int] = {}
    for part in _split(tokens(text, file)):
        cursor = Cursor(text, file, part)
        statement, named = _statement(cursor)
        known = statement.name.lower()
        if known in lines:
            raise cursor.error(
                f"{statement.name} is already defined on line {lines[known]}", "Give each a name of its own.", named
            )
        lines[known] = statement.line
        statements.append(statement)
    if not statements:
        raise PipelineError(f"{file} has no statements.", way_out=_FORMS)
    keys = {table.name.lower(): table.key for table in statements if isinstance(table, TableStatement)}
    return tuple(
        _in_key_order(table, keys, file) if isinstance(table, TableStatement) else table for table in statements
    )


def in_reading_order(statements: Sequence[Statement]) -> list[Statement]:
    """Tables first, and each view after those that it names; otherwise in the order of the file.

    >>> text = "CREATE MATERIALIZED VIEW b AS SELECT * FROM a; CREATE MATERIALIZED VIEW a AS SELECT x FROM t;"
    >>> [one.name for one in in_reading_order(parse_pipeline(text))]
    ['a', 'b']
    """
    views = {view.name.lower(): view for view in statements if isinstance(view, ViewStatement)}
    found: dict[str, ViewStatement] = {}
    begun: set[str] = set()

    def visit(name: str) -> None:
        if name in begun:
            return  # also where two views name each other: then one of them names a column, or the engine refuses it
        begun.add(name)
        words = {one.name.lower() for one in tokens(views[name].sql, name) if one.kind in (Kind.WORD, Kind.NAME)}
        for inner in views:
            if inner in words:
                visit(inner)
        found[name] = views[name]

    for name in views:
        visit(name)
    return [*(one for one in statements if isinstance(one, TableStatement)), *found.values()]


def _in_key_order(table: TableStatement, keys: dict[str, tuple[str, ...]], file: str) -> TableStatement:
    """Put the columns of each foreign key in the order of the key they refer to, where the pipeline has that table."""
    ordered = []
    for reference in table.foreign_keys:
        key = keys.get(reference.table.lower(), ())
        own = dict(zip((name.lower() for name in reference.theirs), reference.columns, strict=False))
        if own and reference.table.lower() in keys:
            if sorted(own) != sorted(map(str.lower, key)):
                raise PipelineError(
                    f"{file}, line {table.line}: table {table.name} refers to {reference.table} "
                    f"({', '.join(reference.theirs)}), which is not its primary key.",
                    way_out=f"Refer to its key, ({', '.join(key)})."
                    if key
                    else f"Give {reference.table} a PRIMARY KEY.",
                )
            reference = replace(reference, columns=tuple(own[name.lower()] for name in key))
        ordered.append(reference)
    return replace(table, foreign_keys=tuple(ordered))


def _split(all_tokens: list[Token]) -> list[list[Token]]:
    """Cut at the semicolons; each part keeps the token that ended it."""
    parts: list[list[Token]] = [[]]
    for token in all_tokens:
        parts[-1].append(token)
        if token.is_symbol(";"):
            parts.append([])
    return [part for part in parts if len(part) > 1]


def _statement(cursor: Cursor) -> tuple[Statement, Token]:
    line = line_of(cursor.text, cursor.now.start)
    if not cursor.take_word("CREATE"):
        raise cursor.error(f"a pipeline has no {cursor.now.written.upper()} statement", _FORMS)
    replace = cursor.take_words("OR", "REPLACE")
    kinds: dict[tuple[str, ...], Callable[[Cursor, int, bool], tuple[Statement, Token]]] = {
        ("TABLE",): _table,
        ("MATERIALIZED", "VIEW"): _view,
    }
    for words, parse in kinds.items():
        if cursor.take_words(*words):
            return parse(cursor, line, replace)
    if cursor.now.is_word("VIEW"):
        raise cursor.error("a view is kept up to date, so it is a materialized one", "Write CREATE MATERIALIZED VIEW.")
    raise cursor.error("this cannot be created in a pipeline", _FORMS)


def _table(cursor: Cursor, line: int, replace: bool) -> tuple[TableStatement, Token]:
    if replace:
        raise cursor.error(
            "a table cannot be replaced: its rows are the sum of all changes so far",
            "Write CREATE TABLE; to start over, run with another --location.",
            cursor.last,
        )
    cursor.take_words("IF", "NOT", "EXISTS")
    named = cursor.identifier("the table's name")
    cursor.expect("(", f"the columns of {named.name}, as in (id BIGINT, amount DOUBLE)")
    declared = columns(cursor)
    if not cursor.take_word("USING"):
        _refuse_other_clause(cursor)
        raise cursor.error(
            f"table {named.name} has no source",
            "Add where its rows come from, as in USING parquet OPTIONS (path 'sales/').",
        )
    source = cursor.identifier("a format, as in USING parquet").name
    chosen = options(cursor) if cursor.take_word("OPTIONS") else {}
    _refuse_other_clause(cursor)
    cursor.expect_end("OPTIONS (...) or ;")
    return TableStatement(named.name, declared.ddl, declared.key, declared.foreign_keys, source, chosen, line), named


def _view(cursor: Cursor, line: int, replace: bool) -> tuple[ViewStatement, Token]:
    cursor.take_words("IF", "NOT", "EXISTS")
    named = cursor.identifier("the view's name")
    goal, idle_after = goal_clause(cursor), idle_clause(cursor)
    if not cursor.take_word("AS"):
        raise cursor.error(
            f"expected AS SELECT ... after the view's name, {named.name}",
            "A goal may stand between them, as in TARGET LAG '5 seconds'; name columns in the query: SELECT a AS b.",
        )
    query = cursor.now
    if not (query.is_word("SELECT", "WITH", "FROM") or query.is_symbol("(")):
        raise cursor.error("expected a query", "Write AS SELECT ... (or WITH ... SELECT ...).")
    sql = cursor.text[query.start : cursor.end.start].rstrip()
    return ViewStatement(named.name, sql, line, replace, goal, idle_after), named


def _refuse_other_clause(cursor: Cursor) -> None:
    word = cursor.now.written.upper()
    if word in _OTHER_CLAUSES:
        raise cursor.error(f"a pipeline's table has no {word} clause", _OTHER_CLAUSES[word])
