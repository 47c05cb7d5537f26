import re
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest
from tests.factorized.explained import SMALL, explained, of_dataset

from headrace.datasets.housing import HOUSING
from headrace.datasets.retailer import RETAILER
from headrace.factorized.explain import JoinExplanation

SVG = "{http://www.w3.org/2000/svg}"
# The advance of a character at 12 pixels, in the widest usual monospace font (DejaVu Sans Mono).
ADVANCE = 0.602 * 12


def path(length: int) -> dict[str, tuple[str, ...]]:
    return {f"R{i}": (f"x{i}", f"x{i + 1}") for i in range(length)}


EXPLAINED = {
    "small": lambda: explained(SMALL, ["B", "D", "E"]),
    "3-path": lambda: explained(path(3), ["x0", "x3"], static=frozenset(["R0"])),
    "9-path": lambda: explained(path(9), ["x0"]),
    "one relation": lambda: explained({"R": ("A", "B")}, ["B"], groups=("A",)),
    "product": lambda: explained({"R": ("A",), "S": ("B",)}, ["A"]),
    "long names": lambda: explained({"r" * 90: ("a" * 80, "b" * 70), "s": ("a" * 80,)}, ["b" * 70]),
    "wide characters": lambda: explained({"表" * 30: ("鍵",), "S": ("鍵",)}, []),
    "small, recursive": lambda: explained(SMALL, ["B", "D", "E"], strategy="recursive"),
    "7-path, recursive": lambda: explained(path(7), ["x0"], strategy="recursive"),
    "housing": lambda: of_dataset(HOUSING),
    "housing, first-order": lambda: of_dataset(HOUSING, strategy="first-order"),
    "housing, recursive": lambda: of_dataset(HOUSING, strategy="recursive"),
    "retailer": lambda: of_dataset(RETAILER, order=RETAILER.order),
    "retailer, recursive": lambda: of_dataset(RETAILER, strategy="recursive"),
}


@pytest.fixture(params=EXPLAINED.values(), ids=EXPLAINED.keys())
def explanation(request: pytest.FixtureRequest) -> JoinExplanation:
    return request.param()


def rectangle(element: ET.Element) -> tuple[float, float, float, float]:
    x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def boxes(svg: ET.Element) -> list[tuple[float, float, float, float]]:
    return [rectangle(e) for e in svg.iter(f"{SVG}rect") if e.attrib["class"] == "box"]


def test_every_view_is_drawn_once(explanation: JoinExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    drawn = [group.attrib["data-view"] for group in svg.iter(f"{SVG}g")]
    assert drawn == [view.name for view in explanation.views]
    edges = list(svg.iter(f"{SVG}path"))
    leaves = sum(view.relation is not None for view in explanation.views)
    assert len(edges) == sum(len(view.children) for view in explanation.views) + leaves


def test_boxes_do_not_overlap(explanation: JoinExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    for a, b in combinations(boxes(svg), 2):
        apart = a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
        assert apart, (a, b)


def test_nothing_sticks_out(explanation: JoinExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for x0, y0, x1, y1 in boxes(svg):
        assert 0 < x0 < x1 < width
        assert 0 < y0 < y1 < height
    for text in svg.iter(f"{SVG}text"):
        size = float(text.attrib.get("font-size", 12)) / 12
        length = sum(2 if ord(c) > 0x3000 else 1 for c in text.text or "") * ADVANCE * size
        start = float(text.attrib["x"]) - (length / 2 if text.attrib.get("text-anchor") else 0)
        assert start > 0
        assert start + length < width
    for group in svg.iter(f"{SVG}g"):
        (box,) = group.iter(f"{SVG}rect")
        longest = max(sum(2 if ord(c) > 0x3000 else 1 for c in t.text or "") for t in group.iter(f"{SVG}text"))
        assert longest * ADVANCE < float(box.attrib["width"])


def test_edges_go_down(explanation: JoinExplanation) -> None:
    for edge in ET.fromstring(explanation.to_svg()).iter(f"{SVG}path"):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", edge.attrib["d"])]
        assert numbers[1] < numbers[-1]


def test_what_is_kept_is_seen() -> None:
    svg = ET.fromstring(EXPLAINED["3-path"]().to_svg())
    looks = {
        group.attrib["data-view"]: (box.attrib["fill"], box.attrib.get("stroke-dasharray"))
        for group in svg.iter(f"{SVG}g")
        for box in group.iter(f"{SVG}rect")
    }
    answer, not_kept, replicated = looks["V_@x1[]"], looks["V_@x2[x1]"], looks["V_R2[x2]"]
    assert answer[1] is None
    assert not_kept[1] is not None
    assert replicated[1] is None
    assert len({answer, not_kept, replicated}) == 3
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert texts[0] == "covariance moments: factorized, partitioned by x1"
    assert texts[-4:] == ["kept", "kept once, read by every bucket", "not kept", "relation"]
    assert "R0 (static)" in texts


def test_hostile_names_stay_text() -> None:
    hostile = "<script>alert('&\"')</script>]]>\x00\ud800"
    explanation = explained({hostile: (hostile, "B"), "S": (hostile,)}, ["B"], name=hostile)
    text = explanation.to_svg()
    text.encode()
    svg = ET.fromstring(text)
    assert "script" not in {element.tag.removeprefix(SVG) for element in svg.iter()}
    shown = hostile.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert next(g.attrib["data-view"] for g in svg.iter(f"{SVG}g")) == f"V_@{shown}[]"
    assert any(shown[:30] in (t.text or "") for t in svg.iter(f"{SVG}text"))


def test_the_drawing_stands_alone(explanation: JoinExplanation) -> None:
    text = explanation.to_svg()
    assert "href" not in text
    assert text.count("http") == 1  # the namespace
    background = next(ET.fromstring(text).iter(f"{SVG}rect"))
    assert (background.attrib["width"], background.attrib["height"]) == ("100%", "100%")
    assert text == explanation.to_svg()
