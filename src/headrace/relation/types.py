"""The SQL types a column may have, and how each maps to Arrow.

One small value type, `SqlType`, is the vocabulary that schemas, plans and kernels share, so none of them
has to know Spark. Its names are Spark's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import SchemaError

INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_PLAIN = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(),
}
_SYNONYMS = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "bool": "boolean",
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")


INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""How many digits a decimal needs to hold any integer of a type."""


@dataclass(frozen=True)
class SqlType:
    """A SQL type: a kind, and precision and scale where the kind is `decimal`.

    >>> SqlType.parse("DECIMAL(12, 2)")
    SqlType(kind='decimal', precision=12, scale=2)
    >>> str(SqlType.parse("bigint"))
    'bigint'
    """

    kind: str
    precision: int = 0
    scale: int = 0

    @classmethod
    def parse(cls, text: str) -> SqlType:
        """Read a type from its SQL (or Spark `simpleString`) spelling."""
        word = text.strip().lower()
        word = _SYNONYMS.get(word, word)
        if word in _PLAIN:
            return cls(word)
        match = _DECIMAL.fullmatch(word)
        if match:
            precision, scale = int(match[1] or 10), int(match[2] or 0)
            if 1 <= precision <= 38 and scale <= precision:
                return cls("decimal", precision, scale)
        supported = ", ".join([*_PLAIN, "decimal(p, s)"]).upper()
        raise SchemaError(f"type {text!r} is not supported", way_out=f"use one of {supported}")

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that holds exactly the values of this SQL type."""
        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        return _PLAIN[self.kind]

    @property
    def is_integer(self) -> bool:
        return self.kind in INTEGERS

    @property
    def is_floating(self) -> bool:
        return self.kind in ("float", "double")

    @property
    def is_decimal(self) -> bool:
        return self.kind == "decimal"

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_floating or self.is_decimal

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.is_decimal else self.kind


def sql_type(kind: pa.DataType) -> SqlType:
    """Find the SQL type that an Arrow type stands for.

    >>> sql_type(pa.int32())
    SqlType(kind='int', precision=0, scale=0)
    """
    if pa.types.is_decimal(kind):
        return SqlType("decimal", kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return SqlType("timestamp" if kind.tz else "timestamp_ntz")
    if pa.types.is_string(kind):
        return SqlType("string")
    for name, arrow in _PLAIN.items():
        if arrow == kind:
            return SqlType(name)
    raise SchemaError(
        f"Arrow type {kind} is not supported", way_out=f"use one of {', '.join(map(str, _PLAIN.values()))}"
    )
