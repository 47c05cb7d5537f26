"""The two bracketed lists of a `CREATE TABLE`: its columns with their constraints, and the options of its source."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.sql.cursor import Cursor
from headrace.sql.lexer import Kind, Token

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_COLUMN_FORM = (
    "A column is written: name TYPE [NOT NULL] [PRIMARY KEY] [REFERENCES table], and columns are parted by commas."
)
_UNKNOWN_CONSTRAINTS = ("UNIQUE", "CHECK", "DEFAULT", "GENERATED", "COLLATE")


@dataclass(frozen=True)
class ForeignKey:
    """Columns that hold the key of another table; `theirs` are that table's columns, where they are named."""

    columns: tuple[str, ...]
    table: str
    theirs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """The columns of a table as Spark's DDL, with the primary key and the foreign keys declared on them."""

    ddl: str
    key: tuple[str, ...]
    foreign_keys: tuple[ForeignKey, ...]


class _Declared:
    """The columns and constraints that have been read so far."""

    def __init__(self) -> None:
        self.names: list[Token] = []
        self.ddl: list[str] = []
        self.key: tuple[str, ...] = ()
        self.foreign_keys: list[ForeignKey] = []


def columns(cursor: Cursor) -> Columns:
    """Read the columns and constraints of a table, up to the closing parenthesis."""
    declared = _Declared()
    start = cursor.last
    while True:
        _item(cursor, declared)
        if cursor.take_symbol(")"):
            break
        if not cursor.take_symbol(","):
            raise cursor.error(f"did not expect {cursor.now.written or 'the end'} here", _COLUMN_FORM)
    if not declared.names:
        raise cursor.error("a table needs at least one column", _COLUMN_FORM, start)
    spelling = _spelling(cursor, declared)
    foreign_keys = (replace(reference, columns=spelling(reference.columns)) for reference in declared.foreign_keys)
    return Columns(", ".join(declared.ddl), spelling(declared.key), tuple(foreign_keys))


def options(cursor: Cursor) -> dict[str, str]:
    """Read `(name 'value', ...)`; `name = value`, numbers and booleans are fine too, as in Spark."""
    form = "Options are written: OPTIONS (path 'folder', header 'true')."
    cursor.expect("(", "OPTIONS (path 'folder')")
    found: dict[str, str] = {}
    while not cursor.take_symbol(")"):
        first = cursor.now
        if first.kind not in (Kind.WORD, Kind.NAME, Kind.STRING):
            raise cursor.error("expected the name of an option", form)
        cursor.take()
        name = first.string if first.kind is Kind.STRING else first.name
        while cursor.take_symbol("."):  # Spark's own options have dots: kafka.bootstrap.servers
            if cursor.now.kind not in (Kind.WORD, Kind.NAME, Kind.NUMBER):
                raise cursor.error("expected the rest of the option's name", form)
            name += "." + cursor.take().name
        cursor.take_symbol("=")
        if name.lower() in (known.lower() for known in found):
            raise cursor.error(f"option {name} is given twice", "Keep one of them.", first)
        found[name] = _value(cursor, name, form)
        if not cursor.take_symbol(",") and not cursor.now.is_symbol(")"):
            raise cursor.error("expected , or ) after an option", form)
    return found


def _value(cursor: Cursor, name: str, form: str) -> str:
    token = cursor.now
    if token.kind is Kind.STRING:
        return cursor.take().string
    if token.kind is Kind.NUMBER or token.is_word("TRUE", "FALSE"):
        return cursor.take().written.lower()
    raise cursor.error(f"expected the value of option {name}, in quotes", form)


def _item(cursor: Cursor, declared: _Declared) -> None:
    if cursor.take_word("CONSTRAINT"):
        cursor.identifier("the constraint's name")
        if not cursor.now.is_word("PRIMARY", "FOREIGN"):
            raise cursor.error("this constraint is not known", "PRIMARY KEY and FOREIGN KEY are; leave others out.")
    at = cursor.now
    if cursor.take_words("PRIMARY", "KEY"):
        _set_key(cursor, declared, cursor.names("key columns"), at)
    elif cursor.take_words("FOREIGN", "KEY"):
        own = cursor.names("the referring columns")
        if not cursor.take_word("REFERENCES"):
            raise cursor.error("expected REFERENCES", "Write FOREIGN KEY (column) REFERENCES table.")
        declared.foreign_keys.append(_reference(cursor, own))
    else:
        _column(cursor, declared)


def _column(cursor: Cursor, declared: _Declared) -> None:
    token = cursor.identifier("a column's name")
    ddl = f"{token.name if _PLAIN_NAME.fullmatch(token.name) else token.written} {_type(cursor, token)}"
    declared.names.append(token)
    while True:
        at = cursor.now
        if cursor.take_words("NOT", "NULL"):
            ddl += " NOT NULL"
        elif cursor.take_words("PRIMARY", "KEY"):
            _set_key(cursor, declared, (token.name,), at)
        elif cursor.take_word("REFERENCES"):
            declared.foreign_keys.append(_reference(cursor, (token.name,)))
        elif cursor.take_word("COMMENT") and cursor.now.kind is Kind.STRING:
            cursor.take()
        elif at.is_word(*_UNKNOWN_CONSTRAINTS):
            raise cursor.error(f"{at.written.upper()} is not known here", f"Leave it out. {_COLUMN_FORM}")
        else:
            break
    declared.ddl.append(ddl)


def _type(cursor: Cursor, column: Token) -> str:
    start = cursor.now
    if start.kind is not Kind.WORD:
        raise cursor.error(f"expected the type of column {column.name}", _COLUMN_FORM)
    cursor.take()
    # DECIMAL(10, 2), ARRAY<INT>: whatever the brackets hold is Spark's to judge.
    depth = 0
    while depth or cursor.now.is_symbol("(", "<"):
        if cursor.now is cursor.end:
            raise cursor.error(f"the type of column {column.name} is never closed", _COLUMN_FORM, start)
        token = cursor.take()
        depth += token.is_symbol("(", "<") - token.is_symbol(")", ">")
    return cursor.text[start.start : cursor.last.end]


def _reference(cursor: Cursor, own: tuple[str, ...]) -> ForeignKey:
    table = cursor.identifier("the table that is referred to").name
    theirs: tuple[str, ...] = ()
    if cursor.now.is_symbol("("):
        at = cursor.now
        theirs = cursor.names("the columns that are referred to")
        if len(theirs) != len(own):
            raise cursor.error(
                f"{len(own)} columns cannot refer to {len(theirs)}", "Name as many columns on both sides.", at
            )
    return ForeignKey(own, table, theirs)


def _set_key(cursor: Cursor, declared: _Declared, key: tuple[str, ...], at: Token) -> None:
    if declared.key:
        raise cursor.error("a table has one primary key", "Name all its columns in one: PRIMARY KEY (a, b).", at)
    declared.key = key


def _spelling(cursor: Cursor, declared: _Declared) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Return a function that spells names as the columns do, since case does not matter in SQL."""
    spelled: dict[str, str] = {}
    for token in declared.names:
        if token.name.lower() in spelled:
            raise cursor.error(
                f"column {token.name} is there twice", "Names do not differ by case alone in Spark; rename one.", token
            )
        spelled[token.name.lower()] = token.name

    def spell(names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name.lower() not in spelled:
                known = ", ".join(spelled.values())
                raise cursor.error(f"there is no column {name}", f"The columns of this table are {known}.", cursor.last)
        return tuple(spelled[name.lower()] for name in names)

    return spell
