"""Verdicts on targets: what was not measured is never met, and a lower bound is enough where it suffices."""

from __future__ import annotations

import io

from rich.console import Console

from headrace.bench.measuring.targets import judged, other_options, target_lines, verdict


def test_what_was_not_measured_says_why_and_is_not_met() -> None:
    absent = verdict("ratio", ">=", 2, None)
    other = verdict("ratio", ">=", 2, 5.0, why_not=other_options({"scale": 1, "sorted": True}, {"scale": 5}))
    assert absent["met"] is other["met"] is None
    assert absent["not_measured"] == "the run has no such case"
    assert other["not_measured"] == "the target is for scale 5, and the run has 1"
    assert other["value"] == 5
    assert other_options({"scale": 5.0, "more": 1}, {"scale": 5}) == ""


def test_a_lower_bound_can_meet_a_target_and_cannot_miss_it() -> None:
    assert verdict("ratio", ">=", 2, 3.0, at_least="it stopped")["met"]
    assert verdict("ratio", ">=", 2, 1.0, at_least="it stopped")["met"] is None
    assert verdict("ratio", "<=", 2, 3.0, at_least="it stopped")["met"] is False
    assert verdict("ratio", "<=", 2, 1.0, at_least="it stopped")["met"] is None


def test_no_target_is_met_while_an_answer_is_wrong() -> None:
    found = [verdict("a", ">=", 1, 2.0), verdict("b", "<=", 1, 2.0), verdict("c", "<=", 1, None)]
    assert judged(found, [{"case": "x"}]) == found
    assert [one["met"] for one in judged(found, [{"case": "x", "wrong": "1 is not 2"}])] == [False, False, None]


def test_the_screen_has_a_line_per_target() -> None:
    console = Console(file=io.StringIO(), width=200)
    met, missed = (
        verdict("a", ">=", 1, 2000.0, at_least="it stopped"),
        verdict("b", "<=", 1, 2.0) | {"queries": "2 of 2"},
    )
    console.print(target_lines([met, missed, verdict("c", "<=", 1, None)]))
    shown = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert shown == [
        "met a >= 1: at least 2,000 (it stopped)",
        "NOT MET b <= 1: 2 (2 of 2 queries)",
        "NOT MEASURED c <= 1: the run has no such case",
    ]
