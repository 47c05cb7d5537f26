"""Table definitions: columns, key and references, as immutable values that are checked when they are made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import SchemaError
from headrace.relation.types import SqlType

DIFF = "__diff"
_MAX_KEY = 64


@dataclass(frozen=True)
class Column:
    """One column: a name, a SQL type, and whether it may be NULL."""

    name: str
    type: SqlType
    nullable: bool = True


@dataclass(frozen=True)
class TableSchema:
    """A changing table: its columns, the key that identifies a row, and references to other tables.

    >>> schema = TableSchema.of("t", [Column("id", SqlType("bigint")), Column("x", SqlType("double"))], key="id")
    >>> schema.key, schema.column("id").nullable
    (('id',), False)
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    references: tuple[tuple[str, str], ...] = ()
    static: bool = False  # it never changes once views read it
    kept: bool = True  # its rows are stored, so views can be made later and deletions can be checked

    @classmethod
    def of(
        cls,
        name: str,
        columns: Iterable[Column],
        key: str | Iterable[str] | None = None,
        references: Mapping[str, str] | None = None,
        *,
        static: bool = False,
        kept: bool = True,
    ) -> TableSchema:
        """Check a definition and make a schema of it; key columns become NOT NULL."""
        check_name(name, "table")
        columns = list(columns)
        names = [column.name for column in columns]
        keys = (key,) if isinstance(key, str) else tuple(key or ())
        links = dict(references or {})
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
        for what, wanted in (("key", keys), ("references", tuple(links))):
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
        fixed = tuple(Column(c.name, c.type, c.nullable and c.name not in keys) for c in columns)
        if not kept and keys:
            raise SchemaError(
                f"table {name!r} has a key, but its rows are not to be kept: nothing could tell whether a key is there",
                way_out="leave out key=..., or keep the rows",
            )
        return cls(name, fixed, keys, tuple(sorted(links.items())), static, kept)

    def column(self, name: str) -> Column:
        """Find a column by name."""
        return next(column for column in self.columns if column.name == name)

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
            "references": dict(self.references),
            "static": self.static,
            "kept": self.kept,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> TableSchema:
        """Read a definition back from the commit log."""
        columns = [Column(name, SqlType.parse(kind), nullable) for name, kind, nullable in data["columns"]]  # type: ignore[attr-defined]
        return cls.of(
            data["name"],  # type: ignore[arg-type]
            columns,
            data["key"],  # type: ignore[arg-type]
            data["references"],  # type: ignore[arg-type]
            static=bool(data.get("static", False)),
            kept=bool(data.get("kept", True)),
        )


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
