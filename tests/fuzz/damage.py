"""What can happen to a location: by accident, as disks and people do it, or on purpose, with right checksums."""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.relation.runlayout import MAGIC, PREAMBLE
from headrace.runtime.location import _checksum

OUTSIDE = "outside"  # a folder beside the location, in which nothing may change


def files_of(root: Path) -> list[Path]:
    """The files of a location that may be damaged."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    return [path for path in found if path.name != "lock" and "checkpoints" not in path.parts]


def by_accident(root: Path, rng: random.Random) -> str:
    """Damage one file, or two; returns what was done."""
    kinds = sorted({path.suffix for path in files_of(root)})
    kind = rng.choice(kinds)  # runs are many, and would be most of the cases
    path = rng.choice([path for path in files_of(root) if path.suffix == kind])
    what = rng.choice(list(_ACCIDENTS))
    _ACCIDENTS[what](path, rng)
    return f"{what}: {path.relative_to(root)}"


def on_purpose(root: Path, rng: random.Random) -> str:
    """Change what a file says, and its checksum with it; returns what was done."""
    what = rng.choice(list(_CRAFTS))
    return f"{what}: {_CRAFTS[what](root, rng)}"


# -- accidents ---------------------------------------------------------------------------------------------------------


def _rewritten(path: Path, data: bytes) -> None:
    path.unlink()  # it may be a link to the file that all cases begin with
    path.write_bytes(data)


def _truncated(path: Path, rng: random.Random) -> None:
    _rewritten(path, path.read_bytes()[: rng.randrange(max(1, path.stat().st_size))])


def _flipped(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 20])):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    _rewritten(path, bytes(data))


def _zeroed(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    at, size = rng.randrange(max(1, len(data))), rng.choice([8, 512, 4096, len(data)])
    data[at : at + size] = bytes(len(data[at : at + size]))
    _rewritten(path, bytes(data))


def _longer(path: Path, rng: random.Random) -> None:
    _rewritten(path, path.read_bytes() + rng.randbytes(rng.choice([1, 64, 4096])))


def _swapped(path: Path, rng: random.Random) -> None:
    other = rng.choice([found for found in path.parent.iterdir() if found.suffix == path.suffix])
    one, two = path.read_bytes(), other.read_bytes()
    _rewritten(path, two)
    if other != path:
        _rewritten(other, one)


def _copied_over(path: Path, rng: random.Random) -> None:
    other = rng.choice([found for found in path.parent.iterdir() if found.is_file()])
    _rewritten(path, other.read_bytes())


def _gone(path: Path, rng: random.Random) -> None:
    path.unlink()


def _other(path: Path, rng: random.Random) -> None:
    """Put something in its place that is no file."""
    path.unlink()
    outside = next(up for up in path.parents if (up / OUTSIDE).is_dir()) / OUTSIDE
    kind = rng.choice(["pipe", "folder", "link", "link to nothing"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(outside / ("keep.run" if kind == "link" else "nothing"))


_ACCIDENTS: dict[str, Callable[[Path, random.Random], None]] = {
    "truncated": _truncated,
    "flipped": _flipped,
    "zeroed": _zeroed,
    "longer": _longer,
    "swapped": _swapped,
    "copied over": _copied_over,
    "gone": _gone,
    "another kind of thing": _other,
}


# -- on purpose --------------------------------------------------------------------------------------------------------

_NAMES = (
    "../keep.run",
    "../../outside/keep.run",
    "/etc/passwd",
    "",
    ".",
    "a/b.run",
    "..",
    "\0.run",
    "x" * 5000,
    "a.run",
)
_NUMBERS = (-1, 0, 1, 7, 2**31, 2**63 - 1, 2**64, 10**40, 0.5, True, None, "1", [], {}, float("nan"))


def _mutated(value: Any, rng: random.Random) -> Any:
    """The same JSON with one part of it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {name: one for name, one in value.items() if name != key}
        if rng.random() < 0.1:
            return {(rng.choice(_NAMES) if name == key else name): one for name, one in value.items()}
        return value | {key: _mutated(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.1:
            return value[:at] + value[at + 1 :]
        return [*value[:at], _mutated(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.8:
        return rng.choice(_NAMES)
    if type(value) is int and rng.random() < 0.5:
        return value + rng.choice([-1, 1, 8, -8, 4096])
    return rng.choice(_NUMBERS)


def _record(root: Path, rng: random.Random) -> str:
    path = rng.choice(sorted((root / "log").glob("*.c*")))
    data = json.loads(path.read_bytes().split(b"\n")[0])
    for _ in range(rng.choice([1, 1, 3])):
        data = _mutated(data, rng)
    text = json.dumps(data, separators=(",", ":")).encode()
    _rewritten(path, text + f"\n{zlib.crc32(text):08x}\n".encode())
    return path.name


def _run_named(root: Path, rng: random.Random) -> str:
    """Let the log name a file elsewhere as a run, or as rows that were set aside."""
    path = rng.choice(sorted((root / "log").glob("*.c*")))
    text = path.read_bytes().split(b"\n")[0]
    names = [path.name for folder in ("runs", "quarantine") for path in (root / folder).iterdir()]
    name, new = rng.choice(names), json.dumps(rng.choice(_NAMES))[1:-1]
    text = text.replace(name.encode(), new.encode())
    _rewritten(path, text + f"\n{zlib.crc32(text):08x}\n".encode())
    return f"{name} is {new[:40]} in {path.name}"


def _header(root: Path, rng: random.Random) -> str:
    """Change what the header of a run says; the log then has its new checksum, too."""
    path = rng.choice(sorted((root / "runs").iterdir()))
    data = bytearray(path.read_bytes())
    starts = [at for at in range(0, len(data) - 32, 64) if data[at : at + 8] == MAGIC]
    start = rng.choice(starts)
    _, header_bytes, crc, size = PREAMBLE.unpack_from(data, start)
    (length,) = struct.unpack_from("<I", data, start + PREAMBLE.size)
    at = start + PREAMBLE.size + 4
    if rng.random() < 0.8:
        text = json.dumps(_mutated(json.loads(data[at : at + length]), rng), separators=(",", ":")).encode()
        room = start + header_bytes - at
        data[at : at + room] = (text + bytes(data[at + length : start + header_bytes]))[:room].ljust(room, b"\0")
        struct.pack_into("<I", data, start + PREAMBLE.size, len(text))
    else:
        header_bytes, size = (rng.choice([0, 8, 31, value, value + 64, 2**63]) for value in (header_bytes, size))
    new = zlib.crc32(data[start + PREAMBLE.size : start + min(header_bytes, len(data))])
    PREAMBLE.pack_into(data, start, MAGIC, header_bytes, new, size)
    _rewritten(path, bytes(data))
    for record in (root / "log").glob("*.c*"):
        text = record.read_bytes().split(b"\n")[0].replace(f",{crc}]".encode(), f",{new}]".encode())
        _rewritten(record, text + f"\n{zlib.crc32(text):08x}\n".encode())
    return path.name


def _settings(root: Path, rng: random.Random) -> str:
    path = root / "headrace.json"
    data = json.loads(path.read_bytes())
    data.pop("crc")
    data = _mutated(data, rng)
    text = json.dumps(data | {"crc": _checksum(data)} if isinstance(data, dict) else data)
    _rewritten(path, text.encode())
    return text[:100]


def _plan(root: Path, rng: random.Random) -> str:
    path = rng.choice(sorted((root / "plans").iterdir()))
    data = json.loads(path.read_bytes())
    data.pop("crc")
    data = data | {"plan": _mutated(data["plan"], rng)}
    data["crc"] = zlib.crc32(json.dumps(data, sort_keys=True).encode())
    _rewritten(path, json.dumps(data).encode())
    return path.name


def _folder(root: Path, rng: random.Random) -> str:
    """Let a folder of the location be a link to a folder elsewhere."""
    path = root / rng.choice(["log", "runs", "batches", "quarantine", "plans", "lock", "headrace.json"])
    if path.exists():
        path.rename(path.with_name("before"))
    path.symlink_to(root.parent / OUTSIDE, target_is_directory=True)
    return path.name


_CRAFTS: dict[str, Callable[[Path, random.Random], str]] = {
    "record": _record,
    "name of a run": _run_named,
    "header of a run": _header,
    "settings": _settings,
    "plan": _plan,
    "folder": _folder,
}
