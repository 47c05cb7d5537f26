"""The text of a report, for people at a terminal.

What is kept, what a step costs and why comes first, in plain words; sections follow, each under its heading. Reports
are full of names that users chose: how a line is broken, cut and kept from moving a terminal's cursor is decided here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.explain.parts import Cell, Fact, Outline, Part, Table
from headrace.explain.words import cut, one_line

if TYPE_CHECKING:
    from headrace.explain.report import Report

WIDTH = 120
_DEEPEST = 12  # from here on an outline is not indented any further
_SHORTEST, _LAST = 20, 30  # a column of words is not cut further, if the last one has this much room
_LINES = 2  # of the last cell of a row


def to_text(report: Report) -> str:
    """Write a report as lines of at most 120 characters."""
    lines = _wrapped(report.title, "", "    ")
    for label, said in (("kept", report.kept), ("a step", report.step), ("why", report.why)):
        lines += _labelled(label, said)
    for section in report.sections:
        lines.append(section.title)
        lines += [line for part in section.parts for line in _written(part)]
    # Names are the user's: what would move the cursor of a terminal does not get there.
    return "\n".join("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line) for line in lines)


def _written(part: Part) -> Iterator[str]:
    if isinstance(part, Fact):
        yield from _labelled(part.label, part.text)
    elif isinstance(part, Outline):
        yield from _outlined(part)
    else:
        yield from _aligned(part)


def _labelled(label: str, text: str) -> list[str]:
    return _wrapped(text, f"  {label:10} ", " " * 13)


def _wrapped(text: str, first: str, then: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False) or [
        first.rstrip()
    ]


def _outlined(outline: Outline) -> Iterator[str]:
    for depth, line in outline.lines:
        indent = " " * (4 + 2 * min(depth, _DEEPEST))
        yield from _wrapped(line, indent, f"{indent}    ")


def _aligned(table: Table) -> Iterator[str]:
    last = len(table.head) - 1
    numbers = [all(not isinstance(row[i], str) for row in table.rows) for i in range(last + 1)]
    rows = [table.head, *(tuple(map(_cell, row)) for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(last + 1)]
    over = 4 + sum(widths[:last]) + 2 * last + min(_LAST, widths[last]) - WIDTH
    for i in range(last):
        less = 0 if numbers[i] else max(0, min(over, widths[i] - _SHORTEST))
        widths[i], over = widths[i] - less, over - less
    for row in rows:
        cells = [
            f"{cut(cell, width):>{width}}" if number else f"{cut(cell, width):{width}}"
            for cell, width, number in zip(row[:last], widths, numbers, strict=False)
        ]
        start = "".join(f"{cell}  " for cell in ["  ", *cells])
        end = f"{row[last]:>{widths[last]}}" if numbers[last] else row[last]
        found = textwrap.wrap(
            end,
            WIDTH - len(start),
            max_lines=_LINES,
            placeholder=" ...",
            break_on_hyphens=False,
            drop_whitespace=not numbers[last],
        )
        yield f"{start}{found[0] if found else ''}".rstrip()
        yield from (f"{' ' * len(start)}{line}" for line in found[1:])


def _cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        return f"{cell:,}"
    return " " * (len(cell) - len(cell.lstrip(" "))) + one_line(cell)
