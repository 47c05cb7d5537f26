"""Words for what was counted and listed, the same in all reports."""

from __future__ import annotations

from collections.abc import Sequence


def one_line(text: str) -> str:
    """A name on one line, whatever is in it."""
    return " ".join(text.split())


def cut(text: str, width: int) -> str:
    """A text of so many characters at most."""
    return text if len(text) <= width else text[: width - 3] + "..."


def counted(count: int, what: str, several: str = "") -> str:
    """A number of things, in words.

    >>> counted(1, "row"), counted(2000, "entry", "entries")
    ('1 row', '2,000 entries')
    """
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and an "and".

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
