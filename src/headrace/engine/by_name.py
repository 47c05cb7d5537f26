"""Names of tables and views as in SQL: in any case, since no two of a location differ in case only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from headrace.errors import BadRowsError

V = TypeVar("V")


def spelled(name: str, known: Iterable[str]) -> str:
    """A name as it was given when the table or view was made; as it is, if there is none.

    >>> spelled("Orders", ["orders", "shops"]), spelled("items", ["orders"])
    ('orders', 'items')
    """
    wanted, names = name.lower(), list(known)
    return name if name in names else next((one for one in names if one.lower() == wanted), name)


def all_spelled(given: Mapping[str, V], known: Iterable[str]) -> dict[str, V]:
    """What was given per name, with each name as it was given when the table was made."""
    names = list(known)
    found: dict[str, V] = {}
    for name, one in given.items():
        own = spelled(name, names)
        if own in found:
            raise BadRowsError(f"table {own!r} was given twice, as {name!r} too", way_out="give each table once")
        found[own] = one
    return found


class ByName(dict[str, V]):
    """Tables or views by name, found in any case.

    >>> views = ByName({"total": 1})
    >>> views["Total"], "TOTAL" in views, views.get("other")
    (1, True, None)
    """

    def __missing__(self, name: str) -> V:
        own = spelled(name, self)
        if not super().__contains__(own):
            raise KeyError(name)
        return self[own]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(spelled(name, self))

    def get(self, name: str, default: Any = None) -> Any:
        own = spelled(name, self)
        return super().get(own, default)
