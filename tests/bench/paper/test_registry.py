"""The registry of figures: all of them are there, what they run exists, and their numbers are those of the paper."""

from __future__ import annotations

import argparse
from importlib import import_module
from xml.etree import ElementTree

import pytest

from headrace.bench import BENCHMARKS
from headrace.bench.paper import options, throughput
from headrace.bench.paper.drawing import drawn
from headrace.bench.paper.figure import Sizes
from headrace.bench.paper.registry import FIGURES


def test_the_registry_is_complete() -> None:
    assert list(FIGURES) == list(range(20, 31))
    for number, figure in FIGURES.items():
        assert figure.number == number
        assert figure.title
        assert figure.measured
        assert figure.machine.startswith("Intel")
        assert figure.differs


@pytest.mark.parametrize("number", list(FIGURES))
@pytest.mark.parametrize("sizes", [Sizes(), Sizes(0.25, 500, 3.0, ("--location", "/tmp"))])
def test_pieces_are_benchmarks_with_arguments_that_they_take(
    number: int, sizes: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = FIGURES[number].pieces(sizes)
    assert len({piece.name for piece in pieces}) == len(pieces) > 0
    taken: list[argparse.Namespace] = []
    parse = argparse.ArgumentParser.parse_args

    def remember(self: argparse.ArgumentParser, args: list[str]) -> argparse.Namespace:
        taken.append(parse(self, args))  # which ends the program where it does not take one
        raise _Taken

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", remember)
    for piece in pieces:
        found = BENCHMARKS[piece.bench]
        with pytest.raises(_Taken):
            import_module(f"headrace.bench.{found.module}").run([*found.arguments, *piece.arguments])
    assert len(taken) == len(pieces)


class _Taken(Exception):
    """Arguments were taken; nothing is to be run."""


@pytest.mark.parametrize("number", list(FIGURES))
def test_a_figure_without_results_says_that_nothing_was_measured(number: int) -> None:
    figure = FIGURES[number]
    shown = figure.shown({})
    assert all(one.here is None for one in shown.comparisons)
    ElementTree.fromstring(drawn(figure.title, shown.panels, figure.columns))


def test_numbers_of_the_paper() -> None:
    """The ratios of Section 9.2's prose follow from the table of Figure 20."""
    said = {one.what: one.paper for one in FIGURES[20].shown({}).comparisons}
    for what, times in (
        ("Retailer CONT", 132),
        ("Retailer MIXED", 58),
        ("Favorita CONT", 7.8),
        ("Favorita MIXED", 4.1),
    ):
        ratio = said[f"{what}: throughput, factorized (F-IVM) / first-order (1-IVM)"]
        assert ratio == pytest.approx(times, rel=0.02)
    assert said["Housing CONT: throughput, factorized (F-IVM) / recursive (DBT)"] == pytest.approx(12.1, rel=0.01)
    assert said["Housing CONT: views, recursive (DBT)"] == 626
    assert len(throughput.PAPER) == 6
    gaps = [one for one in FIGURES[29].shown({}).comparisons if "Octave" in one.what]
    assert [one.paper for one in gaps] == [16, 236]


def test_figures_are_asked_for_by_number_and_range() -> None:
    assert options.figures(["20..30"]) == list(range(20, 31))
    assert options.figures(["27"]) == [27]
    assert options.figures(["30", "21..23", "22", "20,29"]) == [30, 21, 22, 23, 20, 29]
    for wrong, why in (
        ("19", "there is no figure 19"),
        ("29..31", "there is no figure 31"),
        ("30..20", "ends before it starts"),
        ("all", "neither a number nor a range"),
        ("20-30", "neither a number nor a range"),
        (",", "no figure"),
    ):
        with pytest.raises(ValueError, match=why):
            options.figures([wrong])


def test_sizes() -> None:
    assert (Sizes().number(8.0), Sizes().count(100), Sizes().rows(1_000), Sizes().seconds(15)) == (
        *("8", "100", "1000", "15"),
    )
    small = Sizes(0.1, 10, 2.5)
    assert (small.number(8.0), small.count(100), small.rows(1_000), small.seconds(15)) == ("0.8", "10", "10", "2.5")
    assert small.count(3) == "1"
