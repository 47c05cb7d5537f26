"""What is in a drawing: its groups, rectangles, texts and the points of its paths, for tests that look at it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

SVG = "{http://www.w3.org/2000/svg}"
# The advance of a character at 12 pixels, in the widest usual monospace font (DejaVu Sans Mono).
ADVANCE = 0.602 * 12
Rectangle = tuple[float, float, float, float]


def rectangles(svg: ET.Element, *kinds: str) -> Iterator[Rectangle]:
    for element in svg.iter(f"{SVG}rect"):
        if element.attrib["class"] in kinds:
            x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
            yield x, y, x + width, y + height


def groups(svg: ET.Element, kind: str) -> Iterator[ET.Element]:
    return (group for group in svg.iter(f"{SVG}g") if group.attrib["class"] == kind)


def texts(element: ET.Element) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text")]


def length(text: str) -> int:
    return sum(2 if ord(character) > 0x3000 else 1 for character in text)


def way_points(way: str) -> Iterator[tuple[float, float]]:
    """Many points of a path of curves and vertical lines."""
    x = y = 0.0
    for command, rest in re.findall(r"([MCV])([^MCV]*)", way):
        numbers = [float(number) for number in rest.split()]
        if command == "M":
            x, y = numbers
            yield x, y
        elif command == "V":
            yield from ((x, y + (numbers[0] - y) * t / 16) for t in range(1, 17))
            y = numbers[0]
        else:
            ax, ay, bx, by, cx, cy = numbers
            for t in (i / 16 for i in range(1, 17)):
                s = 1 - t
                yield (
                    s**3 * x + 3 * s * s * t * ax + 3 * s * t * t * bx + t**3 * cx,
                    s**3 * y + 3 * s * s * t * ay + 3 * s * t * t * by + t**3 * cy,
                )
            x, y = cx, cy
