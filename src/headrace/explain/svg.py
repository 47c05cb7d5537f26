"""The pieces that drawings of plans are made of: texts, boxes and a legend, as lines of SVG.

Pictures of different strategies should look alike, and each should stand alone: no library, no browser and no font is
needed to make one. So widths come from the lengths of texts, and what users named anything is escaped in one place.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

CHAR = 7.4  # of the widest usual monospace font at 12 pixels, and a little more
LINE = 17
PAD = 11
MARGIN = 24
HEAD = 62  # of the title and the line below it
FOOT = 66  # of the legend
WIDEST = 40  # characters of a line; what is longer is cut, and whole in the tooltip
INK, FAINT, PAPER, EDGE = "#1b2733", "#5b6b7b", "#fbfcfd", "#9aa9b8"
_FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# What XML cannot hold, even escaped.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Look:
    """How a box is filled and outlined."""

    fill: str
    stroke: str
    dashes: str = ""


KEPT = Look("#d9ebfb", "#2f74b5")
REPLICATED = Look("#fdeccb", "#b9770e")


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    label: str
    look: Look
    round_by: float = 3


Headline = Sequence[tuple[str, int]]
"""Lines above a drawing, each with its size."""


def document(width: float, height: float, head: Headline, parts: Sequence[str]) -> str:
    """A whole drawing, with its title above it."""
    opening = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" font-family="{_FONT}" font-size="12">',
        f"<title>{escaped(head[0][0])}</title>",
        # A background of its own makes it readable on a dark page too.
        f'<rect class="background" width="100%" height="100%" fill="{PAPER}"/>',
    ]
    for i, (line, size) in enumerate(head):
        opening.append(text(MARGIN, 34 + 21 * i, line, size, FAINT if i else INK, bold=not i))
    return "\n".join([*opening, *parts, "</svg>", ""])


def head_width(head: Headline) -> float:
    """The width of the widest line above a drawing."""
    return max(length(line) * CHAR * size / 12 for line, size in head)


def legend(entries: Sequence[Key], y: float) -> Iterator[str]:
    """Say what the looks of boxes mean."""
    x = float(MARGIN)
    for entry in entries:
        yield rect(entry.look, x, y - 11, 18, 14, entry.round_by, "key")
        yield text(x + 26, y, entry.label, 12, FAINT)
        x += _entry_width(entry)


def legend_width(entries: Sequence[Key]) -> float:
    """The width that a legend takes."""
    return sum(_entry_width(entry) for entry in entries)


def _entry_width(entry: Key) -> float:
    return 26 + length(entry.label) * CHAR + 20


def rect(look: Look, x: float, y: float, width: float, height: float, round_by: float, kind: str = "box") -> str:
    """A rectangle with round corners; `kind` is its class."""
    dashed = f' stroke-dasharray="{look.dashes}"' if look.dashes else ""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_by:g}" '
        f'fill="{look.fill}" stroke="{look.stroke}" stroke-width="1.4"{dashed}/>'
    )


def text(x: float, y: float, text: str, size: int, colour: str, *, bold: bool = False, middle: bool = False) -> str:
    """A line of text that begins at x, or has its middle there."""
    more = (' font-weight="600"' if bold else "") + (' text-anchor="middle"' if middle else "")
    sized = "" if size == 12 else f' font-size="{size}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}"{sized}{more}>{escaped(text)}</text>'


def length(text: str) -> int:
    """How many columns of a monospace font a text takes: two for each wide character."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def cut(text: str, longest: int) -> str:
    """A text on one line, of so many characters at most."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3] + "..."


def escaped(text: str) -> str:
    """A text as the content of an element, whatever is in it."""
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def attribute(text: str) -> str:
    """A text as the value of an attribute, with its quotes."""
    return quoteattr(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def curve(x: float, y: float, to_x: float, to_y: float) -> str:
    """The part of a path that goes on from one point to another below or above it, bending where nothing is."""
    half = (to_y - y) / 2
    return f" C{x:.1f} {y + half:.1f} {to_x:.1f} {to_y - half:.1f} {to_x:.1f} {to_y:.1f}"
