"""Goals of the benchmark: drawn, the same for all, or one by one; and what is said of those that fit no case."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.bench.share.goals import run
from headrace.bench.share.queries import CASES
from headrace.bench.share.wanted import goals_of


def test_goals_are_drawn_or_the_same_for_all() -> None:
    drawn = goals_of(CASES["tpch"], "random", 1)
    assert set(drawn.values()) == {1.0, 0.5, 0.2, 0.1}
    assert drawn == goals_of(CASES["tpch"], "random", 1) != goals_of(CASES["tpch"], "random", 2)
    assert set(goals_of(CASES["ten"], "0.2", 1).values()) == {0.2}


def test_one_query_of_a_pair_keeps_its_goal() -> None:
    assert goals_of(CASES["pair a"], "1.0,0.1", 1) == {"q5": 1.0, "q8": 0.1}
    assert goals_of(CASES["pair b"], "0.5,1.0", 1) == {"q7": 0.5, "q15": 1.0}
    assert goals_of(CASES["pair c"], "1.0,0.2", 1) == {"qa": 1.0, "qb": 0.2}


@pytest.mark.parametrize(
    ("goals", "said"),
    [
        ("1.0,0.1,0.5", "has 3 shares, and the case 'pair a' has 2 queries: give one share for each of q5, q8"),
        ("1.0,high", "give 'random', a share above 0 and up to 1, or one such share per query, as in 1.0,0.1"),
        ("0", "give 'random', a share above 0 and up to 1, or one such share per query, as in 1.0,0.1"),
        ("randomly", "give 'random', a share above 0 and up to 1, or one such share per query, as in 1.0,0.1"),
    ],
)
def test_goals_that_fit_no_case_are_refused_at_once(
    goals: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(["--cases", "pair a", "--goals", "1.0,0.1", goals, "--location", str(tmp_path)])
    assert said in " ".join(capsys.readouterr().err.split())
