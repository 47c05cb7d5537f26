"""Sizes as people write them: "2 GB" is a number of bytes."""

from __future__ import annotations

import re

from headrace.errors import SchemaError

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def bytes_of(size: str | int | None) -> int | None:
    """The bytes of a memory budget; None stands for no budget.

    >>> bytes_of("2 GB"), bytes_of("512 KiB"), bytes_of(1000), bytes_of(None)
    (2000000000, 524288, 1000, None)
    """
    if size is None:
        return None
    if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
        return size
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = None if found is None else _UNITS.get(found[2].upper() or "B")
    if found is None or unit is None:
        raise SchemaError(
            f"memory_budget={size!r} is not a size",
            way_out="give bytes, as in 500_000_000, a text as in '2 GB', or None to keep everything",
        )
    return int(float(found[1]) * unit)


def size_text(size: float) -> str:
    """Bytes in the unit that suits them.

    >>> size_text(950), size_text(2_340_000)
    ('950 bytes', '2.3 MB')
    """
    for unit in ("TB", "GB", "MB", "KB"):
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:,.1f} {unit}"
    return f"{size:,.0f} {'byte' if size == 1 else 'bytes'}"
