"""What the sections of a report are made of: facts, outlines and tables."""

from __future__ import annotations

from dataclasses import dataclass

Cell = str | int | float | None


@dataclass(frozen=True)
class Fact:
    """A text with a label before it; without one it goes on where the fact before it ended."""

    label: str
    text: str


@dataclass(frozen=True)
class Outline:
    """Lines below each other, each with its depth."""

    lines: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head; a column of numbers is one of numbers only."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


Part = Fact | Outline | Table


@dataclass(frozen=True)
class Section:
    """Some parts under one heading."""

    title: str
    parts: tuple[Part, ...]
