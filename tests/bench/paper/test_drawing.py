"""Pictures of figures: what is ours and what is the paper's, where points stand, and that any name is drawn as text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from headrace.bench.paper.chart import FACTORIZED, FIRST_ORDER, RECURSIVE, Line, Mark, Panel, colours
from headrace.bench.paper.drawing import _Axis, drawn, powers

_SVG = "{http://www.w3.org/2000/svg}"


def _parsed(*panels: Panel, columns: int = 2) -> ElementTree.Element:
    return ElementTree.fromstring(drawn("Figure", panels, columns))


def test_lines_of_ours_and_of_the_paper() -> None:
    lines = (
        Line(FACTORIZED, ((0.0, 10.0), (0.5, 100.0), (1.0, 1_000.0))),
        Line(FACTORIZED, ((0.0, 500.0), (1.0, 500.0)), paper=True),
        Line("a < b", ((0.5, 20.0),), paper=True),
    )
    picture = _parsed(Panel("one", "rows", "share", lines))
    paths = {path.get("class"): path for path in picture.iter(f"{_SVG}path") if path.get("class")}
    assert set(paths) == {"here", "paper"}
    assert paths["paper"].get("stroke-dasharray")
    assert paths["here"].get("stroke-dasharray") is None
    circles = [circle.get("class") for circle in picture.iter(f"{_SVG}circle")]
    assert (circles.count("here"), circles.count("paper")) == (3, 1)  # an average has no points
    assert "a < b" in [text.text for text in picture.iter(f"{_SVG}text")]


def test_points_stand_where_their_logarithm_is() -> None:
    picture = _parsed(Panel("one", "s", "n", (Line("x", ((1.0, 10.0), (10.0, 100.0), (100.0, 1_000.0))),), log_x=True))
    at = [
        (float(circle.get("cx", "")), float(circle.get("cy", "")))
        for circle in picture.iter(f"{_SVG}circle")
        if circle.get("class")
    ]
    assert at[1][0] - at[0][0] == pytest.approx(at[2][0] - at[1][0], abs=0.2)
    assert at[0][1] - at[1][1] == pytest.approx(at[1][1] - at[2][1], abs=0.2)
    assert at[0][1] > at[2][1]  # up is more


def test_marks_have_a_row_for_ours_and_the_papers_value() -> None:
    marks = (
        Mark("housing", FACTORIZED, 1_000.0),
        Mark("housing", FACTORIZED, 50_000.0, paper=True),
        Mark("housing", RECURSIVE, 20.0, paper=True, note="over"),
        Mark("retailer", FACTORIZED, 30.0),
    )
    picture = _parsed(Panel("one", "rows/s", marks=marks))
    said = [text.text for text in picture.iter(f"{_SVG}text")]
    assert "1k, paper 50k" in said
    assert "paper 20" in said
    here, paper = (
        next(circle for circle in picture.iter(f"{_SVG}circle") if circle.get("class") == kind)
        for kind in ("here", "paper")
    )
    assert here.get("cy") == paper.get("cy")
    titles = [title.text for circle in picture.iter(f"{_SVG}circle") for title in circle]
    assert f"{RECURSIVE}, paper: 20 (over)" in titles


def test_values_without_a_logarithm_are_left_out() -> None:
    picture = _parsed(Panel("one", "rounds", "joins", (Line("x", ((5.0, 0.0), (10.0, 7.0))),)))
    assert len([circle for circle in picture.iter(f"{_SVG}circle") if circle.get("class")]) == 1


@pytest.mark.parametrize(("least", "most"), [(1, 1), (3, 8), (0.004, 0.0041), (20, 5e7), (7, 700), (1e-9, 1e9)])
def test_axes_have_all_values(least: float, most: float) -> None:
    marked = powers(least, most)
    assert marked[0] <= least * (1 + 1e-9)
    assert marked[-1] >= most * (1 - 1e-9)
    assert 2 <= len(marked) <= 10
    assert marked == sorted(set(marked))
    axis = _Axis.over([least, most], 0.0, 100.0, log=True)
    assert -1e-6 <= axis.at(least) <= axis.at(most) <= 100.0 + 1e-6


def test_strategies_have_the_same_colour_in_all_figures_and_no_two_names_share_one() -> None:
    few = colours([Panel("", "", lines=(Line(FACTORIZED, ()), Line("other", ())))])
    many = colours(
        [Panel("", "", lines=[Line(name, ()) for name in (RECURSIVE, FACTORIZED, FIRST_ORDER, "a", "b", "c", "d")])]
    )
    assert few[FACTORIZED] == many[FACTORIZED]
    assert len(set(many.values())) == len(many)
