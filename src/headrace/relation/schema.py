"""Table definitions: columns, key, references, watermark, as immutable values that are checked when they are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.errors import SchemaError
from headrace.relation.duration import Duration
from headrace.relation.types import SqlType

DIFF = "__diff"
STEP = "__step"
BUCKET = "__bucket"
"""Beside rows that were set aside, and groups that are final: which step did that."""
_MAX_KEY = 64

Reference = str | tuple[str, ...]  # the column of a foreign key, or its columns in the order of the other table's key
Dependencies = Mapping[str, Iterable[str]] | Mapping[tuple[str, ...], Iterable[str]] | Mapping[Reference, Iterable[str]]
References = Mapping[str, str] | Mapping[tuple[str, ...], str] | Mapping[Reference, str]


@dataclass(frozen=True)
class Column:
    """One column: a name, a SQL type, and whether it may be NULL."""

    name: str
    type: SqlType
    nullable: bool = True


@dataclass(frozen=True)
class Watermark:
    """How late a row may come: at most `delay` behind the latest time in the column so far."""

    column: str
    delay: Duration

    @classmethod
    def of(cls, table: str, columns: Iterable[Column], given: object) -> Watermark:
        """Check what a user gives: (column, delay)."""
        if isinstance(given, str) or not isinstance(given, Iterable) or len(pair := list(given)) != 2:
            raise SchemaError(
                f"table {table!r}: watermark={given!r} is not a column and a delay",
                way_out="give both, as in watermark=('ts', '10 minutes')",
            )
        kinds = {column.name: column.type.kind for column in columns}
        if kinds.get(pair[0]) not in ("timestamp", "timestamp_ntz"):
            what = "is none of its columns" if pair[0] not in kinds else f"is {kinds[pair[0]].upper()}"
            raise SchemaError(
                f"table {table!r}: the watermark column {pair[0]!r} {what}",
                way_out="name a column of type TIMESTAMP or TIMESTAMP_NTZ",
            )
        try:
            return cls(pair[0], Duration.parse(pair[1]))
        except SchemaError as error:
            raise SchemaError(f"table {table!r}, watermark: {error.what}", way_out=error.way_out) from error


@dataclass(frozen=True)
class TableSchema:
    """A changing table: its columns, the key that identifies a row, and references to other tables.

    >>> schema = TableSchema.of("t", [Column("id", SqlType("bigint")), Column("x", SqlType("double"))], key="id")
    >>> schema.key, schema.column("id").nullable
    (('id',), False)
    >>> TableSchema.of("u", schema.columns, references={"id": "t", ("id", "x"): "v"}).references
    (('id', 't'), (('id', 'x'), 'v'))
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    references: tuple[tuple[Reference, str], ...] = ()
    static: bool = False  # it never changes once views read it
    kept: bool = True  # its rows are stored, so views can be made later and deletions can be checked
    # A hint for plans that are made while the table is empty. No part of what the table is, so not compared.
    expected_rows: int | None = field(default=None, compare=False)
    watermark: Watermark | None = None  # rows that come later than this are set aside
    append_only: bool = False  # its rows are never deleted; a deletion is a bad row
    fds: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()  # columns, and the columns that they determine

    @classmethod
    def of(
        cls,
        name: str,
        columns: Iterable[Column],
        key: str | Iterable[str] | None = None,
        references: References | None = None,
        *,
        static: bool = False,
        kept: bool = True,
        expected_rows: int | None = None,
        watermark: object = None,
        append_only: bool = False,
        fds: Dependencies | None = None,
    ) -> TableSchema:
        """Check a definition and make a schema of it; key columns become NOT NULL."""
        check_name(name, "table")
        columns = list(columns)
        names = [column.name for column in columns]
        keys = (key,) if isinstance(key, str) else tuple(key or ())
        links = {_columns(own): table for own, table in (references or {}).items()}
        if not columns:
            raise SchemaError(f"table {name!r} has no columns", way_out="give it at least one, as in 'id BIGINT'")
        folded = [column.lower() for column in names]
        for column in names:
            if folded.count(column.lower()) > 1:
                raise SchemaError(
                    f"table {name!r} has column {column!r} twice", way_out="rename one (SQL names ignore case)"
                )
            if not column or "`" in column or not column.isprintable():
                raise SchemaError(
                    f"table {name!r}: column name {column!r} is empty or has characters that cannot be quoted",
                    way_out="rename the column",
                )
            if column.lower().startswith("__"):
                raise SchemaError(
                    f"table {name!r}: column {column!r} begins with two underscores, which Headrace keeps for itself",
                    way_out="rename the column",
                )
        for what, wanted in (("key", keys), *(("references", link) for link in links)):
            for column in wanted:
                if column not in names:
                    raise SchemaError(
                        f"table {name!r}: {what} column {column!r} is not one of its columns",
                        way_out=f"use one of {', '.join(names)}",
                    )
        if len(set(keys)) != len(keys) or len(keys) > _MAX_KEY:
            raise SchemaError(
                f"table {name!r}: the key {keys} repeats a column or has more than {_MAX_KEY}",
                way_out="name each key column once",
            )
        for link in links:
            if not link or len(set(link)) != len(link):
                raise SchemaError(
                    f"table {name!r}: the reference {link} has no column or repeats one",
                    way_out="name each column once, in the order of the other table's key",
                )
        if expected_rows is not None and (type(expected_rows) is not int or expected_rows < 0):
            raise SchemaError(
                f"table {name!r}: expected_rows={expected_rows!r} is no number of rows",
                way_out="give a whole number of 0 or more, or leave it out",
            )
        fixed = tuple(Column(c.name, c.type, c.nullable and c.name not in keys) for c in columns)
        if not kept and keys:
            raise SchemaError(
                f"table {name!r} has a key, but its rows are not to be kept: nothing could tell whether a key is there",
                way_out="leave out key=..., or keep the rows",
            )
        # A reference of one column stays the plain name it mostly is.
        pairs = tuple((link[0] if len(link) == 1 else link, table) for link, table in sorted(links.items()))
        late = None if watermark is None else Watermark.of(name, fixed, watermark)
        determined = _dependencies(name, names, fds or {}, kept)
        return cls(name, fixed, keys, pairs, static, kept, expected_rows, late, append_only, determined)

    def column(self, name: str) -> Column:
        """Find a column by name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def foreign_keys(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The references, all in one form: own columns, in the order of the other table's key, and that table."""
        return tuple((_columns(own), table) for own, table in self.references)

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the table's rows."""
        return pa.schema([pa.field(c.name, c.type.arrow, c.nullable) for c in self.columns])

    @property
    def change_columns(self) -> tuple[Column, ...]:
        """The columns of a change batch: the table's own, and the multiplicity."""
        return (*self.columns, Column(DIFF, SqlType("bigint"), nullable=False))

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def to_json(self) -> dict[str, object]:
        """Write the definition for the commit log."""
        return {
            "name": self.name,
            "columns": [[c.name, str(c.type), c.nullable] for c in self.columns],
            "key": list(self.key),
            "references": [[list(own), table] for own, table in self.foreign_keys],
            "static": self.static,
            "kept": self.kept,
            "expected_rows": self.expected_rows,
            "watermark": None if self.watermark is None else [self.watermark.column, str(self.watermark.delay)],
            "append_only": self.append_only,
            "fds": [[list(of), list(determined)] for of, determined in self.fds],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> TableSchema:
        """Read a definition back from the commit log."""
        links = data["references"]
        if not isinstance(links, Mapping):
            links = {tuple(own): table for own, table in links}  # type: ignore[attr-defined]
        # Otherwise a location of before references could have several columns: {column: table}.
        columns = [Column(name, SqlType.parse(kind), nullable) for name, kind, nullable in data["columns"]]  # type: ignore[attr-defined]
        return cls.of(
            data["name"],  # type: ignore[arg-type]
            columns,
            data["key"],  # type: ignore[arg-type]
            links,
            static=bool(data.get("static", False)),
            kept=bool(data.get("kept", True)),
            expected_rows=data.get("expected_rows"),  # type: ignore[arg-type]
            watermark=data.get("watermark"),
            append_only=bool(data.get("append_only", False)),
            fds={tuple(of): determined for of, determined in data.get("fds", [])},  # type: ignore[attr-defined]
        )


def _columns(own: Reference) -> tuple[str, ...]:
    return (own,) if isinstance(own, str) else tuple(own)


def _dependencies(
    table: str, names: Iterable[str], given: Dependencies, kept: bool
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Check functional dependencies, as {column or columns: [columns that they determine]}."""
    names, found = list(names), []
    for own, others in given.items():
        of, determined = _columns(own), (others,) if isinstance(others, str) else tuple(others)
        for column in (*of, *determined):
            if column not in names:
                raise SchemaError(
                    f"table {table!r}: fds column {column!r} is not one of its columns",
                    way_out=f"use one of {', '.join(names)}",
                )
        if not of or not determined or len({*of, *determined}) < len(of) + len(determined):
            raise SchemaError(
                f"table {table!r}: the dependency {', '.join(of)} -> {', '.join(determined)} lacks a side or repeats a "
                "column",
                way_out="give the columns that determine others, and those others, as in fds={'zip': ['city']}",
            )
        found.append((of, determined))
    if found and not kept:
        raise SchemaError(
            f"table {table!r} has fds, but its rows are not to be kept: nothing could tell whether a row breaks them",
            way_out="leave out fds=..., or keep the rows",
        )
    return tuple(sorted(found))


def ddl(columns: Iterable[Column]) -> str:
    """Write columns as Spark DDL, names quoted.

    >>> ddl([Column("id", SqlType("bigint"))])
    '`id` bigint'
    """
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def check_name(name: str, what: str) -> None:
    """Accept plain SQL identifiers only: names become parts of file names and of SQL."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,127}", name):
        raise SchemaError(
            f"{what} name {name!r} is not a plain identifier",
            way_out="use a letter, then letters, digits and underscores (at most 128)",
        )
