"""Targets of shared goals: drawn and equal goals are judged, each by itself."""

from __future__ import annotations

from typing import Any

from headrace.bench.share.targets import targets

_SECONDS = {"noshare-uniform": 10.0, "noshare-nonuniform": 8.0, "share-uniform": 20.0, "ours": 5.0}


def rows(views: str, kind: str, *, ours: float = 5.0) -> list[dict[str, Any]]:
    seconds = _SECONDS | {"ours": ours}
    return [
        {"views": views, "goals": "0.2", "kind_of_goals": kind, "approach": a, "cpu_seconds": s, "missed_mean": 0.01}
        for a, s in seconds.items()
    ]


def test_each_kind_of_goals_is_judged_by_itself() -> None:
    results = [*rows("twenty", "random", ours=6.0), *rows("twenty", "uniform")]
    found = {one["target"]: one for one in targets(results)}
    assert found["twenty, random goals: CPU, ours / noshare-uniform <= 0.52"]["value"] == 0.6
    assert found["twenty, random goals: CPU, ours / noshare-uniform <= 0.52"]["met"] is False
    assert found["twenty, uniform goals: CPU, ours / noshare-uniform <= 0.52"]["met"] is True
    assert found["twenty, uniform goals: mean missed latency <= 0.05"]["met"] is True
    lacking = found["tpch, random goals: CPU, ours / share-uniform <= 0.34"]
    assert lacking["not_measured"] == "the run has no tpch with random goals"


def test_goals_that_are_given_one_by_one_are_not_judged() -> None:
    assert not any("pair a" in one["target"] for one in targets(rows("pair a", "listed")))


def test_the_time_to_choose_paces_is_that_of_strict_goals() -> None:
    name = "tpch: seconds to choose paces up to 100 for goals of 0.01 <= 10"
    assert {one["target"]: one["met"] for one in targets([], {"tpch": {"seconds": 3.0}})}[name] is True
    assert {one["target"]: one["met"] for one in targets([], {"ten": {"seconds": 3.0}})}[name] is None
