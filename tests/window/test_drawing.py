"""The drawing of answers: well-formed, whole, and without answers too."""

import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from tests.drawn import SVG, texts

from headrace.window.drawing import to_svg
from headrace.window.emitted import read_answers
from headrace.window.spec import WindowSpec

SPEC = WindowSpec.parse("10 ms")


def answers(values: list[float], width: float = 5.0) -> pa.Table:
    start = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=10 * i) for i in range(len(values))]
    numbers = {"value": values, "low": [v - width for v in values], "high": [v + width for v in values]}
    return pa.table({"window_start": start, **numbers, "observed": [v / 2 for v in values]})


def test_lines_and_points() -> None:
    drawn = ET.fromstring(to_svg("a <title> & more", answers([10.0, 12, 11, 13]), answers([11.0, 30, 11], 0)))
    assert texts(drawn)[0] == "a <title> & more"
    assert "of 3 that are complete, 67% were within" in texts(drawn)[1]
    kinds = [path.attrib.get("class") for path in drawn.iter(f"{SVG}path")]
    assert {"interval", "estimate", "observed"} <= set(kinds)
    points = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in drawn.iter(f"{SVG}circle")]
    assert len(points) == 3
    assert points[1][1] < points[0][1], "what is more is higher up"
    width, height = (float(drawn.attrib[name]) for name in ("width", "height"))
    assert all(0 < x < width and 0 < y < height for x, y in points)
    assert "estimate" in texts(drawn)


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [5.0], [-3.0, 4.0]])
def test_little_to_draw(values: list[float]) -> None:
    told = answers(values) if values else read_answers(SPEC, [])
    drawn = ET.fromstring(to_svg("few", told, read_answers(SPEC, [])))
    assert f"{len(values)} windows, none of them complete" in texts(drawn)[1]
