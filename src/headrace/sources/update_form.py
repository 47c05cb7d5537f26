"""The text form of update streams: one update a line, a sign and a two-letter code glued to the row's fields.

`+LI1|155190|7706|...` inserts a lineitem, and `-LI` before the same fields deletes it. Cquirrel's update streams over
TPC-H look so; which codes there are, and which columns a table has, can be said for other data too.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headrace.datasets.dataset import TableSpec
from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.errors import SchemaError
from headrace.relation.types import sql_type

Schemas = Mapping[str, pa.Schema | TableSpec]

TPCH_CODES = {
    "RI": "region",
    "NA": "nation",
    "SU": "supplier",
    "CU": "customer",
    "PA": "part",
    "PS": "partsupp",
    "OR": "orders",
    "LI": "lineitem",
}
"""The codes of Cquirrel's update streams."""


class UpdateForm:
    """Which tables a file of updates may change, and how their lines begin and go on.

    Parameters
    ----------
    schemas : columns in the order of a line, by table; as Arrow schemas or `TableSpec`s. TPC-H's by default.
    codes : {two letters: table}; those of TPC-H by default.
    """

    def __init__(self, schemas: Schemas | None = None, codes: Mapping[str, str] | None = None) -> None:
        given = TPCH_SCHEMAS if schemas is None else schemas
        self.schemas = {name: one.schema if isinstance(one, TableSpec) else one for name, one in given.items()}
        # Codes of tables that are not asked for do no harm: lines with them are refused when they come.
        self.codes = {code: table for code, table in (codes or TPCH_CODES).items() if table in self.schemas}
        for code in self.codes:
            if len(code.encode()) != 2 or not code.isprintable() or "|" in code:
                raise SchemaError(f"{code!r} is not a code of two letters", way_out="use codes such as 'OR'")
        for name, schema in self.schemas.items():
            if list(self.codes.values()).count(name) != 1:
                raise SchemaError(
                    f"table {name!r} has no code, or several",
                    way_out="pass one code a table, as in codes={'OR': 'orders'}",
                )
            for field in schema:
                sql_type(field.type)  # refuses what cannot be a column

    def code(self, table: str) -> str:
        """Find the code of a table."""
        return next(code for code, name in self.codes.items() if name == table)

    @property
    def known(self) -> str:
        """The codes and their tables, for people."""
        return ", ".join(f"{code} {name}" for code, name in self.codes.items())


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds texts, for which empty is not the same as NULL."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
