"""The state of estimators and answers as text and back, so that a restart changes no answer.

Reading a text cannot run code: objects are made as always, and only numbers are put into them. A class that has a state
names its attributes in `state_fields`; arrays are written as compressed bytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from headrace.errors import CorruptFileError

_ARRAY, _NUMBER, _KEYS = "array", "number", "keys"


class Stateful:
    """A class whose state can be written and read.

    Attributes
    ----------
    state_fields : names of the attributes that make up the state. Each is a number, text, an array, a random generator,
        another `Stateful`, or a dict or list of these.
    state_records : per attribute that has values of a dataclass, that class.
    """

    state_fields: ClassVar[tuple[str, ...]] = ()
    state_records: ClassVar[Mapping[str, type]] = {}

    def state(self) -> dict[str, Any]:
        """Return the state as values that JSON can hold."""
        return {name: _plain(getattr(self, name)) for name in self.state_fields}

    def load(self, state: Mapping[str, Any]) -> None:
        """Replace the state by one that `state` returned."""
        for name in self.state_fields:
            setattr(self, name, _restored(getattr(self, name), state[name], self.state_records.get(name)))


def to_text(stateful: Stateful) -> str:
    """Return the state of an object as text."""
    return json.dumps(stateful.state(), separators=(",", ":"))


def from_text(stateful: Stateful, text: str) -> None:
    """Read a text of `to_text` into an object that was just made."""
    try:
        stateful.load(json.loads(text))
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise CorruptFileError(
            f"the state of a window join cannot be read: {type(error).__name__}: {error}",
            way_out="drop the window join and create it again; rows that are still to come are not affected",
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.state()
    if isinstance(value, np.ndarray):
        packed = zlib.compress(np.ascontiguousarray(value).tobytes(), 1)
        return {_ARRAY: base64.b64encode(packed).decode(), "type": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.random.Generator):
        return {_NUMBER: json.dumps(value.bit_generator.state)}
    if is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, dict):
        return {_KEYS: [_plain(key) for key in value], "values": [_plain(item) for item in value.values()]}
    if isinstance(value, (list, tuple, deque)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value  # NaN and infinities too: Python reads what it has written
    raise TypeError(f"a {type(value).__name__} has no plain form")


def _restored(now: Any, plain: Any, record: type | None) -> Any:
    """Return the value that `_plain` wrote; `now`, the value of the new object, says of which kind it is."""
    if isinstance(now, Stateful):
        now.load(plain)
        return now
    if isinstance(now, np.random.Generator):
        now.bit_generator.state = json.loads(plain[_NUMBER])
        return now
    if isinstance(plain, dict) and _ARRAY in plain:
        data = zlib.decompress(base64.b64decode(plain[_ARRAY], validate=True))
        return np.frombuffer(data, np.dtype(plain["type"])).reshape(plain["shape"]).copy()
    if isinstance(now, dict) or (isinstance(plain, dict) and _KEYS in plain):
        there = now if isinstance(now, dict) else {}
        return {
            key: _restored(there.get(key), value, record)
            for key, value in zip(plain[_KEYS], plain["values"], strict=True)
        }
    if isinstance(now, deque):
        return deque((_restored(None, item, record) for item in plain), maxlen=now.maxlen)
    if isinstance(plain, list):
        if isinstance(now, (list, tuple)) and len(now) == len(plain) and any(isinstance(one, Stateful) for one in now):
            return type(now)(_restored(one, item, record) for one, item in zip(now, plain, strict=True))
        if record is not None:
            made = [_restored(None, item, None) for item in plain]
            return record(*made) if is_dataclass(record) else tuple(made)
        made = [_restored(None, item, None) for item in plain]
        return tuple(made) if isinstance(now, tuple) else made
    return plain
