"""Plans as JSON, so that a location can be looked at without asking Catalyst for them again.

A plan is a tree of frozen dataclasses, enums and plain values, so one pair of functions writes and reads all plans. The
text names each class and its fields; what another version of Headrace wrote, with other classes or fields, is refused
rather than guessed. Nothing but dataclasses and enums of Headrace is ever made from a text.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from importlib import import_module
from typing import Any

_PLAIN = (bool, int, float, str, type(None))


class OtherPlanError(Exception):
    """A text that this version of Headrace cannot have written."""


def to_json(value: object) -> dict[str, Any]:
    """Write a value; equal parts are written once."""
    writer = _Writer()
    root = writer.write(value)
    return {"classes": writer.classes, "objects": writer.objects, "root": root}


def from_json(data: Mapping[str, Any]) -> Any:
    """Read a value that `to_json` wrote."""
    try:
        return _Reader(data).root()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ImportError, RecursionError) as error:
        raise OtherPlanError(f"{type(error).__name__}: {error}") from error


class _Writer:
    def __init__(self) -> None:
        self.classes: dict[str, list[str]] = {}
        self.objects: list[Any] = []
        self._known: dict[str, int] = {}

    def write(self, value: object) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, tuple | list):
            return ["tuple" if isinstance(value, tuple) else "list", *map(self.write, value)]
        if isinstance(value, frozenset):
            return ["set", *map(self.write, sorted(value, key=repr))]
        if isinstance(value, Mapping):
            return ["map", *([self.write(key), self.write(item)] for key, item in value.items())]
        if isinstance(value, Enum):
            return ["enum", _name(type(value)), value.name]
        if is_dataclass(value) and not isinstance(value, type):
            return self._object(value)
        if type(value) in _SCALARS:
            return [_SCALARS[type(value)], str(value)]
        raise TypeError(f"a plan holds a {type(value).__qualname__}")

    def _object(self, value: Any) -> list[Any]:
        name, names = _name(type(value)), [field.name for field in fields(value) if field.init]
        self.classes[name] = names
        written = [name, *(self.write(getattr(value, field)) for field in names)]
        key = json.dumps(written)
        if key not in self._known:
            self._known[key] = len(self.objects)
            self.objects.append(written)
        return ["object", self._known[key]]


class _Reader:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._classes = {name: _class(name) for name in data["classes"]}
        for name, names in data["classes"].items():
            if names != [field.name for field in fields(self._classes[name]) if field.init]:
                raise OtherPlanError(f"{name} has other fields")
        self._objects: list[Any] = []

    def root(self) -> Any:
        for name, *values in self._data["objects"]:
            names = self._data["classes"][name]
            made = self._classes[name](**dict(zip(names, map(self._read, values), strict=True)))
            self._objects.append(made)
        return self._read(self._data["root"])

    def _read(self, data: Any) -> Any:
        if not isinstance(data, list):
            return data
        tag, *rest = data
        if tag == "object":
            return self._objects[rest[0]]
        if tag == "enum":
            return _class(rest[0])[rest[1]]
        if tag == "map":
            return {self._read(key): self._read(item) for key, item in rest}
        if tag in _COLLECTIONS:
            return _COLLECTIONS[tag](map(self._read, rest))
        return _READ[tag](rest[0])


_COLLECTIONS: Mapping[str, Any] = {"tuple": tuple, "list": list, "set": frozenset}
_SCALARS: Mapping[type, str] = {Decimal: "decimal", datetime.date: "date", datetime.datetime: "datetime"}
_READ: Mapping[str, Any] = {
    "decimal": Decimal,
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
}


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: str) -> Any:
    module, _, qualified = name.partition(":")
    found = getattr(import_module(module), qualified) if module.startswith("headrace.") else None
    if not (isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum))):
        raise OtherPlanError(f"{name} is no part of a plan")
    return found
