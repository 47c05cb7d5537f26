"""Drawings of the plans of all strategies: what is drawn, and that nothing is in the way of anything."""

import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest
from tests.drawn import ADVANCE, SVG, Rectangle, groups, length, rectangles, texts, way_points
from tests.factorized import explained as factorized
from tests.factorized.explained import SMALL, of_dataset
from tests.foreign import explained as foreign
from tests.foreign.explained import DIAMOND, TPCH_Q5, ladder, more_than, positive
from tests.operators import explained as operators
from tests.operators.explained import WAITING_SIZES, Trees, above, customers, shared, star, unlike, waiting

from headrace.datasets.housing import HOUSING
from headrace.datasets.retailer import RETAILER
from headrace.explain.layers import Place, arrange, straighten
from headrace.explain.report import Report

TPCH_SIZES = {"lineitem": 6_000_000, "orders": 1_500_000, "customer": 150_000, "supplier": 10_000}
TPCH_SIZES |= {"nation": 25, "region": 5}


def path(length: int) -> dict[str, tuple[str, ...]]:
    return {f"R{i}": (f"x{i}", f"x{i + 1}") for i in range(length)}


def named(name: str) -> Report:
    """Two tables with a name that is hard to draw."""
    t = Trees()
    left = t.table(name, f"a{name}", where=above(f"b{name}"))
    joined = t.join(left, t.table(f"s{name}", f"c{name}"), outputs=("l0",))
    return operators.explained(t.answer(t.given(joined, "l0", where=above("l0")), keys=1), name=name)


REPORTS = {
    "customers": lambda: operators.explained(customers()),
    "waiting": lambda: operators.explained(waiting()),
    "waiting, sizes known": lambda: operators.explained(waiting(), WAITING_SIZES),
    "star": lambda: operators.explained(star(14)),
    "small star": lambda: operators.explained(star(5), {"fact": 1000} | {f"d{i}": 3 for i in range(5)}, static=["d1"]),
    "shared": lambda: operators.explained(shared()),
    "unlike": lambda: operators.explained(unlike()),
    "no step": lambda: operators.explained(unlike(), stepped=False),
    "long names": lambda: named("r" * 90),
    "wide characters": lambda: named("表" * 30),
    "views: small": lambda: factorized.explained(SMALL, ["B", "D", "E"]),
    "views: 3-path": lambda: factorized.explained(path(3), ["x0", "x3"], static=frozenset(["R0"])),
    "views: 9-path": lambda: factorized.explained(path(9), ["x0"]),
    "views: one relation": lambda: factorized.explained({"R": ("A", "B")}, ["B"], groups=("A",)),
    "views: product": lambda: factorized.explained({"R": ("A",), "S": ("B",)}, ["A"]),
    "views: long names": lambda: factorized.explained({"r" * 90: ("a" * 80, "b" * 70), "s": ("a" * 80,)}, ["b" * 70]),
    "views: wide characters": lambda: factorized.explained({"表" * 30: ("鍵",), "S": ("鍵",)}, []),
    "views: small, recursive": lambda: factorized.explained(SMALL, ["B", "D", "E"], strategy="recursive"),
    "views: 7-path, recursive": lambda: factorized.explained(path(7), ["x0"], strategy="recursive"),
    "views: housing": lambda: of_dataset(HOUSING),
    "views: housing, first-order": lambda: of_dataset(HOUSING, strategy="first-order"),
    "views: housing, recursive": lambda: of_dataset(HOUSING, strategy="recursive"),
    "views: retailer": lambda: of_dataset(RETAILER, order=RETAILER.order),
    "views: retailer, recursive": lambda: of_dataset(RETAILER, strategy="recursive"),
    "keys: diamond": lambda: foreign.explained(DIAMOND, ("town",), conditions={"sale": positive("price")}),
    "keys: diamond, filtered": lambda: foreign.explained(DIAMOND, ("town",), condition=more_than("price", "people")),
    "keys: nothing in it": lambda: foreign.explained(DIAMOND, empty=DIAMOND),
    "keys: path": lambda: foreign.explained(foreign.path(9)),
    "keys: star": lambda: foreign.explained(foreign.star(14)),
    "keys: ladder": lambda: foreign.explained(ladder(6)),
    "keys: q5": lambda: foreign.explained(TPCH_Q5, ("n_name",)),
    "keys: q5, small tables everywhere": lambda: foreign.explained(TPCH_Q5, ("n_name",), TPCH_SIZES),
}


@pytest.fixture(params=REPORTS.values(), ids=REPORTS.keys())
def report(request: pytest.FixtureRequest) -> Report:
    return request.param()


def drawn(report: Report) -> ET.Element:
    return ET.fromstring(report.to_svg())


def names(svg: ET.Element, kind: str) -> list[str]:
    return [group.attrib["data-name"] for group in groups(svg, kind)]


def boxes(svg: ET.Element) -> dict[str, Rectangle]:
    return {group.attrib["data-name"]: next(rectangles(group, "box")) for group in groups(svg, "node")}


def labels(svg: ET.Element) -> dict[str, list[str]]:
    return {group.attrib["data-name"]: texts(group) for group in groups(svg, "edge")}


def test_everything_is_drawn_once(report: Report) -> None:
    svg = drawn(report)
    assert names(svg, "node") == [node.name for node in report.graph.nodes]
    assert names(svg, "edge") == [f"{edge.lower} -> {edge.upper}" for edge in report.graph.edges]
    assert names(svg, "band") == [band.title for band in report.graph.bands]


def test_boxes_and_labels_do_not_overlap(report: Report) -> None:
    for a, b in combinations(rectangles(drawn(report), "box", "label"), 2):
        apart = a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
        assert apart, (a, b)


def test_bands_hold_their_layers_and_nothing_else(report: Report) -> None:
    svg = drawn(report)
    bands = {group.attrib["data-name"]: next(rectangles(group, "band")) for group in groups(svg, "band")}
    for group in groups(svg, "band"):
        assert texts(group) == [group.attrib["data-name"]]
    there = boxes(svg)
    for node in report.graph.nodes:
        x0, y0, x1, y1 = there[node.name]
        for band in report.graph.bands:
            left, top, right, bottom = bands[band.title]
            inside = left < x0 and x1 < right and top < y0 and y1 < bottom
            assert inside == (band.first <= node.layer <= band.last)
            assert inside or y1 < top or y0 > bottom
            assert x0 > left + 60  # the names of bands are free to read


def test_nothing_sticks_out(report: Report) -> None:
    svg = drawn(report)
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for x0, y0, x1, y1 in rectangles(svg, "box", "label", "key", "band", "bar", "filled"):
        assert 0 < x0 < x1 < width
        assert 0 < y0 < y1 < height
    for text in svg.iter(f"{SVG}text"):
        long = length(text.text or "") * ADVANCE * float(text.attrib.get("font-size", 12)) / 12
        start = float(text.attrib["x"]) - (long / 2 if text.attrib.get("text-anchor") else 0)
        assert start > 0
        assert start + long < width
    for kind, around in (("node", "box"), ("edge", "label")):
        for group in groups(svg, kind):
            for x0, y0, x1, y1 in rectangles(group, around):
                assert max(map(length, texts(group))) * ADVANCE < x1 - x0
                assert all(y0 < float(text.attrib["y"]) < y1 for text in group.iter(f"{SVG}text"))


def test_arrows_go_up_from_box_to_box_and_through_none(report: Report) -> None:
    svg = drawn(report)
    there = boxes(svg)
    beside = {g.attrib["data-name"]: label for g in groups(svg, "edge") for label in rectangles(g, "label")}
    for edge, group in zip(report.graph.edges, groups(svg, "edge"), strict=True):
        name, lower, upper = group.attrib["data-name"], there[edge.lower], there[edge.upper]
        way = next(path for path in group.iter(f"{SVG}path") if path.attrib["class"] == "way")
        points = list(way_points(way.attrib["d"]))
        assert all(a[1] <= b[1] for a, b in pairwise(points))
        assert upper[3] < points[0][1] < upper[3] + 8
        assert upper[0] < points[0][0] < upper[2]
        assert points[-1][1] == lower[1]
        assert lower[0] < points[-1][0] < lower[2]
        if float(group.attrib["opacity"]) < 1:  # there are so many that they are behind the boxes
            continue
        others = [*there.values(), *(label for own, label in beside.items() if own != name)]
        for x, y in points:
            assert not any(x0 < x < x1 and y0 < y < y1 for x0, y0, x1, y1 in others), name


def test_the_drawing_stands_alone(report: Report) -> None:
    text = report.to_svg()
    assert "href" not in text
    assert text.count("http") == 1  # the namespace
    background = next(ET.fromstring(text).iter(f"{SVG}rect"))
    assert (background.attrib["width"], background.attrib["height"]) == ("100%", "100%")
    assert text == report.to_svg()


def test_what_is_written_of_a_query() -> None:
    report = REPORTS["customers"]()
    svg = drawn(report)
    assert texts(svg)[:2] == [
        "view v: kept by 3 operators over 2 tables",
        "184 entries, 18,400 bytes in 4 buckets: left rows of [0], right rows of [0] and groups of [1] and...",
    ]
    answer, orders, joined, *tables = groups(svg, "node")
    assert texts(answer) == [
        "[2] answer",
        "count(*) by count(o_orderkey)",
        "took 205 groups",
        "gave +7 -4 ~1",
        "5,200 bytes kept",
    ]
    assert texts(orders)[2:4] == ["took 105 groups", "gave +7 -4 ~1"]
    assert texts(joined) == [
        "[0] left outer join",
        "on c_custkey = o_custkey",
        "took +5 -3 ~2",
        "gave +7 -4 ~1",
        "8,400 bytes kept",
    ]
    assert [texts(table) for table in tables] == [
        ["customer", "1,000 rows"],
        ["orders", "2,000 rows", "where (o_comment > 0L)"],
    ]
    assert labels(svg) == {
        "customer -> [0]": ["by c_custkey"],
        "orders -> [0]": ["by o_custkey"],
        "[0] -> [1]": ["stays"],
        "[1] -> [2]": ["by count(o_orderkey)"],
    }
    assert texts(svg)[-4:] == ["operator", "table", "stays in its bucket", "exchanged"]
    # Later stages are above earlier ones, and tables at the bottom.
    assert [band.title for band in sorted(report.graph.bands, key=lambda b: b.first)] == ["stage 2", "stage 1"]
    lowest = max(node.layer for node in report.graph.nodes if node.kind == "operator")
    assert all(node.layer > lowest for node in report.graph.nodes if node.kind == "table")


def test_how_rows_move_is_seen() -> None:
    svg = drawn(REPORTS["small star"]())
    colours: dict[str, set[str]] = {}
    for group in groups(svg, "edge"):
        way = next(path for path in group.iter(f"{SVG}path"))
        colours.setdefault(texts(group)[0], set()).add(way.attrib["stroke"])
    # Rows of the fact table are spread by the one column that they have to the end, so that they stay in their bucket.
    assert colours.keys() == {"stays", "to every bucket", "by k4"}
    assert all(len(some) == 1 for some in colours.values())
    assert len({*colours["stays"], *colours["to every bucket"], *colours["by k4"]}) == 3
    tooltips = [title.text or "" for title in svg.iter(f"{SVG}title")]
    assert any("in every bucket: it was expected to have 3 rows and the other side 1,000" in t for t in tooltips)
    assert any(t.endswith("never changes") for t in tooltips)
    assert "never changes" in texts(svg)


def test_legible_at_a_thousand_pixels() -> None:
    for name in ("customers", "waiting", "waiting, sizes known"):
        assert float(drawn(REPORTS[name]()).attrib["width"]) <= 1_000


def test_what_happens_between_operators_is_seen() -> None:
    found = labels(drawn(REPORTS["shared"]()))
    assert found["[0] -> [2]"][1] == "where (count(*) > 10L)"
    assert sum(name.startswith("[0] -> ") for name in found) == 2  # two read it


def test_what_is_kept_is_seen() -> None:
    svg = drawn(REPORTS["views: 3-path"]())
    looks = {
        group.attrib["data-name"]: (box.attrib["fill"], box.attrib.get("stroke-dasharray"))
        for group in groups(svg, "node")
        for box in group.iter(f"{SVG}rect")
    }
    answer, not_kept, replicated = looks["V_@x1[]"], looks["V_@x2[x1]"], looks["V_R2[x2]"]
    assert answer[1] is None
    assert not_kept[1] is not None
    assert replicated[1] is None
    assert len({answer, not_kept, replicated}) == 3
    assert texts(svg)[0] == "covariance moments: a join kept as one tree of views (factorized)"
    assert texts(svg)[-5:] == ["kept", "in every bucket", "not kept", "table", "never changes"]
    assert looks["relation R0"] != looks["relation R1"]  # it never changes


def test_who_is_alive_is_seen() -> None:
    for name in ("keys: diamond", "keys: diamond, filtered", "keys: nothing in it"):
        report = REPORTS[name]()
        shares = 0
        for node, group in zip(report.graph.nodes, groups(drawn(report), "node"), strict=True):
            found = [o.extra.get("alive") for o in report["operators"] if o.name == node.name]
            alive = found[0] if found else None
            bars = list(rectangles(group, "bar"))
            assert len(bars) == (alive is not None and alive.alive is not None)
            if bars:
                ((x0, _, x1, _),) = bars
                filled = sum(b[2] - b[0] for b in rectangles(group, "filled"))
                assert filled == pytest.approx((alive.alive / alive.rows if alive.rows else 0) * (x1 - x0), abs=0.2)
                assert any(text.startswith(f"alive: {alive}"[:12]) for text in texts(group))
                shares += 1
        assert shares


def test_hostile_names_stay_text() -> None:
    hostile = "<script>alert('&\"')</script>]]>\x00\ud800"
    text = named(hostile).to_svg()
    text.encode()
    svg = ET.fromstring(text)
    assert "script" not in {element.tag.removeprefix(SVG) for element in svg.iter()}
    shown = hostile.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert shown in names(svg, "node")
    assert any(shown[:20] in text for text in texts(svg))


def test_lanes_go_straight_where_there_is_room() -> None:
    lane = [Place(0, 2, x=50), Place(1, 2, x=54), Place(2, 2, x=51)]
    straighten([*lane, Place(1, 20, x=90)], [lane], gap=5)
    assert {place.x for place in lane} == {51}
    bent = [Place(0, 2, x=50), Place(1, 2, x=100)]
    straighten([*bent, Place(0, 60, x=90), Place(1, 60, x=60)], [bent], gap=5)
    assert [place.x for place in bent] == [50, 100]


def test_layers_are_put_in_the_order_that_crosses_least() -> None:
    places = {name: Place(layer, 10) for layer, names in enumerate(["ab", "cd"]) for name in names}
    arrange(places, [("a", "d"), ("b", "c")], gap=5)
    assert (places["a"].x < places["b"].x) == (places["d"].x < places["c"].x)
    assert min(place.x - place.width / 2 for place in places.values()) == 0
    assert abs(places["a"].x - places["d"].x) < 1e-6
