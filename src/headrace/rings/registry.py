"""The rings that users have registered in this process, by name.

SQL can only name a ring, and the commit log can only store its name, so the process says what a name means: before a
location is opened whose views use it. A name keeps its meaning as long as a view of an open engine uses it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Protocol
from weakref import WeakSet

from headrace.errors import SchemaError

_RINGS: dict[str, Any] = {}
_LOCK = threading.Lock()
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Users(Protocol):
    """Somebody who may use rings, such as the catalogue of an open engine."""

    def using_ring(self, name: str) -> list[str]:
        """The views that use a ring."""
        ...


_USERS: WeakSet[Any] = WeakSet()


def check_ring_name(name: str) -> str:
    """The name in the spelling by which it is known: SQL takes functions in any case."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SchemaError(
            f"{name!r} is no name for a ring", way_out="use letters, digits and underscores, as in 'most_reliable'"
        )
    return name.lower()


def register(name: str, ring: Any) -> None:
    """Give a name its ring; the same ring again changes nothing."""
    key = check_ring_name(name)
    with _LOCK:
        known = _RINGS.get(key)
        if known is not None and (known is ring or _equal(known, ring)):
            return
        if known is not None and (views := users_of(key)):
            raise SchemaError(
                f"the name {name!r} belongs to another ring, {known!r}, which {', '.join(views)} uses",
                way_out="drop these views first, or choose another name",
            )
        _RINGS[key] = ring


def ring_called(name: str) -> Any:
    """The ring of a name; raises if there is none in this process."""
    if name not in _RINGS:
        raise SchemaError(f"the ring {name!r} is not registered in this process", way_out=_register_first(name))
    return _RINGS[name]


def registered() -> Mapping[str, Any]:
    """All rings by name."""
    return dict(_RINGS)


def check_registered(view: str, names: Iterable[str]) -> None:
    """Refuse to open a view whose rings are not there."""
    missing = [name for name in names if name not in _RINGS]
    if missing:
        raise SchemaError(
            f"view {view!r} sums in the ring {missing[0]!r}, which is not registered in this process",
            way_out=_register_first(missing[0]),
        )


def other_ring(name: str, expected: str, found: str) -> SchemaError:
    """Return an error: the state is of another ring than the one of this name."""
    return SchemaError(
        f"the ring {name!r} is another one than that which the state was written with: it is a {found}; "
        f"that was a {expected}",
        way_out="register the ring that the view was made with, or drop the view and create it again",
    )


def _register_first(name: str) -> str:
    return (
        f"call hr.register_ring({name!r}, ...) with the ring that its views were made with, before opening the location"
    )


def watch(users: Users) -> None:
    """Let somebody who may use rings have a say in what names mean."""
    _USERS.add(users)


def unwatch(users: Users) -> None:
    """Somebody uses no rings any more."""
    _USERS.discard(users)


def users_of(name: str) -> list[str]:
    """The views of open engines that use a ring."""
    return [view for users in list(_USERS) for view in users.using_ring(name)]


def _equal(left: Any, right: Any) -> bool:
    try:
        return bool(left == right)
    except Exception:  # settings that compare element by element, such as arrays
        return False
