import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest
from tests.drawn import ADVANCE, SVG, groups, length, rectangles, texts, way_points
from tests.foreign.explained import DIAMOND, TPCH_Q5, explained, ladder, more_than, path, positive, star

from headrace.foreign.explain import ForeignExplanation
from headrace.plan.layers import Place, arrange

SIZES = {
    "lineitem": 6_000_000,
    "orders": 1_500_000,
    "customer": 150_000,
    "supplier": 10_000,
    "nation": 25,
    "region": 5,
}

EXPLAINED = {
    "diamond": lambda: explained(DIAMOND, ("town",), conditions={"sale": positive("price")}),
    "diamond, with a condition": lambda: explained(DIAMOND, ("town",), condition=more_than("price", "people")),
    "nothing in it": lambda: explained(DIAMOND, empty=DIAMOND),
    "two tables": lambda: explained(path(2)),
    "path": lambda: explained(path(9)),
    "star": lambda: explained(star(14)),
    "ladder": lambda: explained(ladder(6)),
    "q5": lambda: explained(TPCH_Q5, ("n_name",)),
    "q5, small tables everywhere": lambda: explained(TPCH_Q5, ("n_name",), SIZES),
    "long names": lambda: explained({"r" * 90: (("a" * 80, "b" * 70), ("a" * 80,)), "s": (("b" * 70,), ("b" * 70,))}),
    "wide characters": lambda: explained({"表" * 30: (("鍵", "x"), ("x",)), "S": (("鍵",), ("鍵",))}),
}


@pytest.fixture(params=EXPLAINED.values(), ids=EXPLAINED.keys())
def explanation(request: pytest.FixtureRequest) -> ForeignExplanation:
    return request.param()


def test_every_source_and_every_reference_is_drawn_once(explanation: ForeignExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    drawn = [group.attrib["data-source"] for group in groups(svg, "source")]
    assert sorted(drawn) == sorted(source.name for source in explanation.sources)
    assert drawn[0] == explanation.root
    arrows = [group.attrib["data-reference"] for group in groups(svg, "reference")]
    assert sorted(arrows) == sorted(f"{r.parent} -> {r.child}" for r in explanation.references)


def test_boxes_and_labels_do_not_overlap(explanation: ForeignExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    for a, b in combinations(rectangles(svg, "box", "label"), 2):
        apart = a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
        assert apart, (a, b)


def test_nothing_sticks_out(explanation: ForeignExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for x0, y0, x1, y1 in rectangles(svg, "box", "label", "key"):
        assert 0 < x0 < x1 < width
        assert 0 < y0 < y1 < height
    for text in svg.iter(f"{SVG}text"):
        long = length(text.text or "") * ADVANCE * float(text.attrib.get("font-size", 12)) / 12
        start = float(text.attrib["x"]) - (long / 2 if text.attrib.get("text-anchor") else 0)
        assert start > 0
        assert start + long < width
    for kind, around in (("source", "box"), ("reference", "label")):
        for group in groups(svg, kind):
            ((x0, _, x1, _),) = rectangles(group, around)
            assert max(map(length, texts(group))) * ADVANCE < x1 - x0


def test_arrows_go_down_from_box_to_box_and_through_none(explanation: ForeignExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    boxes = {group.attrib["data-source"]: next(rectangles(group, "box")) for group in groups(svg, "source")}
    for reference, group in zip(_in_order(explanation, svg), groups(svg, "reference"), strict=True):
        edge = next(path for path in group.iter(f"{SVG}path") if path.attrib["class"] == "edge")
        points = list(way_points(edge.attrib["d"]))
        assert all(a[1] <= b[1] for a, b in pairwise(points))
        parent, child = boxes[reference[0]], boxes[reference[1]]
        assert points[0][1] == parent[3]
        assert parent[0] < points[0][0] < parent[2]
        assert child[1] - 8 < points[-1][1] < child[1]
        assert child[0] < points[-1][0] < child[2]
        for x, y in points:
            assert not any(x0 < x < x1 and y0 < y < y1 for x0, y0, x1, y1 in boxes.values())


def _in_order(explanation: ForeignExplanation, svg: ET.Element) -> list[tuple[str, str]]:
    known = {f"{r.parent} -> {r.child}": (r.parent, r.child) for r in explanation.references}
    return [known[group.attrib["data-reference"]] for group in groups(svg, "reference")]


def test_a_source_is_below_all_that_refer_to_it(explanation: ForeignExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    top = {group.attrib["data-source"]: next(rectangles(group, "box"))[1] for group in groups(svg, "source")}
    for reference in explanation.references:
        assert top[reference.parent] < top[reference.child]
    lowest_parent = {
        source.name: max(top[r.parent] for r in explanation.references if r.child == source.name)
        for source in explanation.sources
        if source.name != explanation.root
    }
    tops = sorted(set(top.values()))
    for name, parent in lowest_parent.items():  # and right below the lowest of them
        assert tops.index(top[name]) == tops.index(parent) + 1


def test_counts_are_written_and_bars_are_filled_by_them(explanation: ForeignExplanation) -> None:
    svg = ET.fromstring(explanation.to_svg())
    for group in groups(svg, "source"):
        source = explanation.source(group.attrib["data-source"])
        ((x0, _, x1, _),) = rectangles(group, "bar")
        filled = list(rectangles(group, "live"))
        live = explanation.answer_rows if source.live is None else source.live
        share = live / source.rows if source.rows else 0
        assert sum(b[2] - b[0] for b in filled) == pytest.approx(share * (x1 - x0), abs=0.2)
        if source.live is None:
            assert texts(group)[-1] == f"{live:,} in the answer, {source.rows:,} rows"
        else:
            assert texts(group)[-1] == f"{source.live:,} live, {source.dead:,} dead"
    for group in groups(svg, "reference"):
        parent, child = next(r for r in _in_order(explanation, svg) if " -> ".join(r) == group.attrib["data-reference"])
        waiting = next(r.waiting for r in explanation.references if (r.parent, r.child) == (parent, child))
        assert [t for t in texts(group) if t.endswith(" wait")] == ([f"{waiting:,} wait"] if waiting else [])


def test_what_is_seen_of_the_diamond() -> None:
    svg = ET.fromstring(EXPLAINED["diamond"]().to_svg())
    assert texts(svg)[:2] == ["view v: foreign-key, root sale", "2,092 of 4,396 rows live, 66,000 bytes in 4 buckets"]
    sale = next(groups(svg, "source"))
    assert texts(sale) == ["sale", "[sale_id]", "(price > 0L)", "256 live, 768 dead"]
    labels = {group.attrib["data-reference"]: texts(group) for group in groups(svg, "reference")}
    assert labels == {
        "sale -> shop": ["shop", "512 wait"],
        "sale -> buyer": ["buyer", "= town", "256 wait"],
        "shop -> town": ["town", "512 wait"],
        "buyer -> town": ["town", "512 wait"],
        "town -> country": ["country", "512 wait"],
    }
    assert len(list(rectangles(svg, "asserted"))) == 1
    assert texts(svg)[-3:] == ["in the bucket of a key", "live rows", "must agree (assertion key)"]


def test_what_is_in_every_bucket_is_seen() -> None:
    svg = ET.fromstring(EXPLAINED["q5, small tables everywhere"]().to_svg())
    fill = {
        group.attrib["data-source"]: next(group.iter(f"{SVG}rect")).attrib["fill"] for group in groups(svg, "source")
    }
    everywhere = {name for name, colour in fill.items() if colour == fill["nation"]}
    assert everywhere == {"customer", "supplier", "nation", "region"}
    assert "in every bucket" in texts(svg)
    tooltips = [title.text or "" for title in svg.iter(f"{SVG}title")]
    assert any(
        t.endswith("in every bucket: supplier is small beside lineitem, so every bucket has it") for t in tooltips
    )


def test_hostile_names_stay_text() -> None:
    hostile = "<script>alert('&\"')</script>]]>\x00\ud800"
    text = explained(
        {hostile: ((hostile, "B"), ("B",)), "S": ((hostile,), (hostile,))},
        (hostile,),
        conditions={hostile: positive(hostile)},
        name=hostile,
    ).to_svg()
    text.encode()
    svg = ET.fromstring(text)
    assert "script" not in {element.tag.removeprefix(SVG) for element in svg.iter()}
    shown = hostile.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    assert next(groups(svg, "source")).attrib["data-source"] == shown
    assert any(shown[:30] in text for text in texts(svg))


def test_the_drawing_stands_alone(explanation: ForeignExplanation) -> None:
    text = explanation.to_svg()
    assert "href" not in text
    assert text.count("http") == 1  # the namespace
    background = next(ET.fromstring(text).iter(f"{SVG}rect"))
    assert (background.attrib["width"], background.attrib["height"]) == ("100%", "100%")
    assert text == explanation.to_svg()


def test_layers_are_put_in_the_order_that_crosses_least() -> None:
    places = {name: Place(layer, 10) for layer, names in enumerate(["ab", "cd"]) for name in names}
    arrange(places, [("a", "d"), ("b", "c")], gap=5)
    assert (places["a"].x < places["b"].x) == (places["d"].x < places["c"].x)
    assert min(place.x - place.width / 2 for place in places.values()) == 0
    assert abs(places["a"].x - places["d"].x) < 1e-6
