"""Lines of an explanation for people at a terminal: labels, wrapping, and words for what was counted.

Explanations of different strategies should read alike, and all of them are full of names that users chose. So how a
line is broken, cut and kept from moving the cursor of a terminal is decided in one place.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WIDTH = 120
DEEPEST = 12  # from here on a tree is not indented any further
_INDENT = 13  # of what stands beside a label


def labelled(label: str, text: str) -> list[str]:
    """A label, and a text beside it."""
    return wrapped(text, f"  {label:10} ", " " * _INDENT)


def wrapped(text: str, first: str, then: str) -> list[str]:
    """A text as lines that fit, with what the first and the others begin with."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False) or [
        first.rstrip()
    ]


def one_line(text: str) -> str:
    """A name on one line, whatever is in it."""
    return " ".join(text.split())


def cut(text: str, width: int) -> str:
    """A text of so many characters at most."""
    return text if len(text) <= width else text[: width - 3] + "..."


def counted(count: int, what: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and an "and".

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def last_step(summary: Mapping[str, Any]) -> list[str]:
    """What the last step did, and where it ran; nothing if there was none."""
    if not summary:
        return []
    place = "in the driver" if summary.get("ran") == "driver" else "as a Spark job"
    return [
        *labelled("last step", str(summary.get("text", ""))),
        *labelled("", f"ran {place}: {summary.get('why', '')}"),
    ]


def printable(lines: Iterable[str]) -> str:
    """Join lines. Names are the user's: what would move the cursor of a terminal does not get there."""
    return "\n".join("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line) for line in lines)
