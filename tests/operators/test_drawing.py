import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest
from tests.drawn import ADVANCE, SVG, Rectangle, groups, length, rectangles, texts, way_points
from tests.operators.explained import WAITING_SIZES, Trees, above, customers, explained, shared, star, unlike, waiting

from headrace.operators.explain import OperatorsExplanation
from headrace.plan.layers import Place, straighten


def named(name: str) -> OperatorsExplanation:
    """Two tables with a name that is hard to draw."""
    t = Trees()
    left = t.table(name, f"a{name}", where=above(f"b{name}"))
    joined = t.join(left, t.table(f"s{name}", f"c{name}"), outputs=("l0",))
    return explained(t.answer(t.given(joined, "l0", where=above("l0")), keys=1), name=name)


EXPLAINED = {
    "customers": lambda: explained(customers()),
    "waiting": lambda: explained(waiting()),
    "waiting, sizes known": lambda: explained(waiting(), WAITING_SIZES),
    "star": lambda: explained(star(14)),
    "small star": lambda: explained(star(5), {"fact": 1000} | {f"d{i}": 3 for i in range(5)}, static=["d1"]),
    "shared": lambda: explained(shared()),
    "unlike": lambda: explained(unlike()),
    "no step": lambda: explained(unlike(), stepped=False),
    "long names": lambda: named("r" * 90),
    "wide characters": lambda: named("表" * 30),
}


@pytest.fixture(params=EXPLAINED.values(), ids=EXPLAINED.keys())
def explanation(request: pytest.FixtureRequest) -> OperatorsExplanation:
    return request.param()


def boxes(svg: ET.Element) -> dict[str, Rectangle]:
    return {
        g.attrib["data-name"]: next(rectangles(g, "box")) for kind in ("operator", "table") for g in groups(svg, kind)
    }


def feeds(explanation: OperatorsExplanation) -> list[str]:
    return [f"{feed.name} -> [{o.number}]" for o in explanation.operators for _, feed in o.feeds]


def test_everything_is_drawn_once(explanation: OperatorsExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    operators = [group.attrib["data-name"] for group in groups(svg, "operator")]
    assert operators == [f"[{operator.number}]" for operator in explanation.operators]
    tables = [group.attrib["data-name"] for group in groups(svg, "table")]
    assert sorted(tables) == sorted(source.name for source in explanation.sources)
    assert sorted(group.attrib["data-feed"] for group in groups(svg, "feed")) == sorted(feeds(explanation))
    stages = [int(group.attrib["data-stage"]) for group in groups(svg, "stage")]
    assert stages == [stage.number for stage in explanation.stages if stage.operators]


def test_boxes_and_labels_do_not_overlap(explanation: OperatorsExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    for a, b in combinations(rectangles(svg, "box", "label"), 2):
        apart = a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
        assert apart, (a, b)


def test_bands_hold_the_operators_of_their_stage_and_nothing_else(explanation: OperatorsExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    bands = {int(g.attrib["data-stage"]): next(rectangles(g, "band")) for g in groups(svg, "stage")}
    stages = sorted(bands)
    for lower, upper in pairwise(stages):
        assert bands[upper][3] < bands[lower][1]  # the answer is on top
    titles = {
        number: next(texts(g)[0] for g in groups(svg, "stage") if g.attrib["data-stage"] == str(number))
        for number in stages
    }
    assert titles == {number: f"stage {number}" for number in stages}
    stage = {f"[{o.number}]": o.stage for o in explanation.operators}
    for name, (x0, y0, x1, y1) in boxes(svg).items():
        for number, band in bands.items():
            inside = band[0] < x0 and x1 < band[2] and band[1] < y0 and y1 < band[3]
            assert inside == (stage.get(name) == number)
            assert inside or y1 < band[1] or y0 > band[3]
        assert x0 > bands[stages[0]][0] + 60  # the names of stages are free to read


def test_nothing_sticks_out(explanation: OperatorsExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for x0, y0, x1, y1 in rectangles(svg, "box", "label", "key", "band"):
        assert 0 < x0 < x1 < width
        assert 0 < y0 < y1 < height
    for text in svg.iter(f"{SVG}text"):
        long = length(text.text or "") * ADVANCE * float(text.attrib.get("font-size", 12)) / 12
        start = float(text.attrib["x"]) - (long / 2 if text.attrib.get("text-anchor") else 0)
        assert start > 0
        assert start + long < width
    for kind, around in (("operator", "box"), ("table", "box"), ("feed", "label")):
        for group in groups(svg, kind):
            ((x0, y0, x1, y1),) = rectangles(group, around)
            assert max(map(length, texts(group))) * ADVANCE < x1 - x0
            assert all(y0 < float(text.attrib["y"]) < y1 for text in group.iter(f"{SVG}text"))


def test_arrows_go_from_box_to_box_and_through_none(explanation: OperatorsExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    there = boxes(svg)
    labels = {group.attrib["data-feed"]: next(rectangles(group, "label")) for group in groups(svg, "feed")}
    for group in groups(svg, "feed"):
        name = group.attrib["data-feed"]
        producer, reader = (there[end] for end in name.split(" -> "))
        edge = next(path for path in group.iter(f"{SVG}path") if path.attrib["class"] == "edge")
        points = list(way_points(edge.attrib["d"]))
        assert all(a[1] <= b[1] for a, b in pairwise(points))
        assert reader[3] < points[0][1] < reader[3] + 8
        assert reader[0] < points[0][0] < reader[2]
        assert points[-1][1] == producer[1]
        assert producer[0] < points[-1][0] < producer[2]
        others = [*there.values(), *(label for own, label in labels.items() if own != name)]
        for x, y in points:
            assert not any(x0 < x < x1 and y0 < y < y1 for x0, y0, x1, y1 in others), name


def test_tables_are_at_the_bottom(explanation: OperatorsExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    there = boxes(svg)
    lowest = max(there[f"[{o.number}]"][3] for o in explanation.operators)
    assert all(there[source.name][1] > lowest for source in explanation.sources)


def test_what_is_written_of_a_query() -> None:
    svg = ET.fromstring(EXPLAINED["customers"]().to_svg())
    assert texts(svg)[:2] == [
        "view v: 3 operators in 2 stages",
        "18,400 bytes in 4 buckets, at most 2 exchanges a step",
    ]
    answer, orders, joined = groups(svg, "operator")
    assert texts(answer) == [
        "[2] answer",
        "count(*) by count(o_orderkey)",
        "5,200 bytes kept",
        "took 203 groups",
        "gave +6 -3 ~1",
    ]
    assert texts(orders)[-2:] == ["took 103 groups", "gave +6 -3 ~1"]
    assert texts(joined) == [
        "[0] left outer join",
        "on c_custkey = o_custkey",
        "8,400 bytes kept",
        "took +3 -1 ~2",
        "gave +6 -3 ~1",
    ]
    tables = [texts(group) for group in groups(svg, "table")]
    assert tables == [["customer", "1,000 rows"], ["orders", "where (o_comment > 0L)", "2,000 rows"]]
    labels = {group.attrib["data-feed"]: texts(group) for group in groups(svg, "feed")}
    assert labels == {
        "customer -> [0]": ["by c_custkey"],
        "orders -> [0]": ["by o_custkey"],
        "[0] -> [1]": ["stays"],
        "[1] -> [2]": ["by count(o_orderkey)"],
    }
    assert texts(svg)[-4:] == ["operator", "table", "stays in its bucket", "exchanged"]


def test_how_rows_move_is_seen() -> None:
    svg = ET.fromstring(EXPLAINED["small star"]().to_svg())
    colours: dict[str, set[str]] = {}
    for group in groups(svg, "feed"):
        edge = next(path for path in group.iter(f"{SVG}path"))
        colours.setdefault(texts(group)[0], set()).add(edge.attrib["stroke"])
    assert colours.keys() == {"stays", "to every bucket", "by k0", "by k4"}
    assert all(len(some) == 1 for some in colours.values())
    assert colours["by k0"] == colours["by k4"]
    assert len({*colours["stays"], *colours["to every bucket"], *colours["by k0"]}) == 3
    tooltips = [title.text or "" for title in svg.iter(f"{SVG}title")]
    assert any("in every bucket: it was expected to have 3 rows and the other side 1,000" in t for t in tooltips)
    assert any(t.endswith("never changes") for t in tooltips)
    assert "never changes" in texts(svg)


def test_legible_at_a_thousand_pixels() -> None:
    for name in ("customers", "waiting", "waiting, sizes known"):
        assert float(ET.fromstring(EXPLAINED[name]().to_svg()).attrib["width"]) <= 1_000


def test_what_happens_between_operators_is_seen() -> None:
    svg = ET.fromstring(EXPLAINED["shared"]().to_svg())
    labels = {group.attrib["data-feed"]: texts(group) for group in groups(svg, "feed")}
    assert labels["[0] -> [2]"][1] == "where (count(*) > 10L)"
    assert sum(name.startswith("[0] -> ") for name in labels) == 2  # two read it


def test_hostile_names_stay_text() -> None:
    hostile = "<script>alert('&\"')</script>]]>\x00\ud800"
    text = named(hostile).to_svg()
    text.encode()
    svg = ET.fromstring(text)
    assert "script" not in {element.tag.removeprefix(SVG) for element in svg.iter()}
    shown = hostile.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert next(groups(svg, "table")).attrib["data-name"] == shown
    assert any(shown[:20] in text for text in texts(svg))


def test_the_drawing_stands_alone(explanation: OperatorsExplanation) -> None:
    text = explanation.to_svg()
    assert "href" not in text
    assert text.count("http") == 1  # the namespace
    background = next(ET.fromstring(text).iter(f"{SVG}rect"))
    assert (background.attrib["width"], background.attrib["height"]) == ("100%", "100%")
    assert text == explanation.to_svg()


def test_lanes_go_straight_where_there_is_room() -> None:
    lane = [Place(0, 2, x=50), Place(1, 2, x=54), Place(2, 2, x=51)]
    straighten([*lane, Place(1, 20, x=90)], [lane], gap=5)
    assert {place.x for place in lane} == {51}
    bent = [Place(0, 2, x=50), Place(1, 2, x=100)]
    straighten([*bent, Place(0, 60, x=90), Place(1, 60, x=60)], [bent], gap=5)
    assert [place.x for place in bent] == [50, 100]
