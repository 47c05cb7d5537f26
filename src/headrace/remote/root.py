"""The folder that stands for a location elsewhere, as a text that each process reads as its own.

Tasks get the folder of a location as a text, and add names of files to it. That of the driver would mean nothing to a
task on another machine. So what travels is the URL, with what is needed to open it, and whoever receives it finds the
folder of its own machine.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.relation import disk
from headrace.remote.mirror import Mirror
from headrace.remote.room import folder_for
from headrace.remote.store import opened


@dataclass(frozen=True)
class Place:
    """What travels: where a location is, how to get there, and who writes.

    Parameters
    ----------
    options : as for `store.opened`; not shown, since there may be secrets among them.
    writer : the engine in whose name files are written; "" for one that only reads.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    writer: str = ""


class Root(str):
    """The path of a mirror's folder; in another process, that of the folder there."""

    place: Place

    def __reduce__(self) -> tuple[object, ...]:
        return root_of, (self.place,)


_MIRRORS: dict[tuple[str, frozenset[tuple[str, str]]], Mirror] = {}
_LOCK = threading.Lock()


def root_of(place: Place) -> Root:
    """The folder of this process that stands for a location."""
    root = Root(mirror_of(place).root)
    root.place = place
    return root


def clear(place: Place) -> None:
    """Remove a location that nobody uses any more."""
    mirror = mirror_of(place)
    with _LOCK:
        for key in [key for key, known in _MIRRORS.items() if known is mirror]:
            del _MIRRORS[key]
        disk.unmount(mirror.root)
    mirror.clear()


def mirror_of(place: Place) -> Mirror:
    """The mirror of a location in this process."""
    # Who asks with other rights has another folder: an engine's requests must not be made in the name of a later one.
    folder = folder_for(place.url, place.options.get("endpoint", ""), place.options.get("access_key_id", ""))
    key = str(folder), frozenset(place.options.items())
    with _LOCK:
        if key not in _MIRRORS:
            _MIRRORS[key] = Mirror(folder, opened(place.url, place.options))
            disk.mount(folder, _MIRRORS[key])
        return _MIRRORS[key]
