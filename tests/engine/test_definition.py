"""Definitions are values that come back from JSON as they were."""

from __future__ import annotations

import json

import pytest

from headrace.engine.definition import (
    Choice,
    Definition,
    ModelRequest,
    MomentsRequest,
    Request,
    SqlRequest,
    TreeChoice,
    ViewTreeChoice,
    WindowJoinRequest,
    Wishes,
)
from headrace.errors import StorageError

ORDER = {"variable": "a", "children": [{"variable": "b", "relations": ["R"]}]}
REQUESTS: list[Request] = [
    SqlRequest("SELECT 1"),
    SqlRequest("SELECT 1", Wishes("factorized", ORDER, "a", never_full=True), final=True),
    MomentsRequest("SELECT x FROM t", Wishes(order="a\n  b")),
    MomentsRequest("SELECT x FROM t", features=("x", "y")),
    ModelRequest("SELECT x FROM t", features=("x", "y"), model={"label": "y", "alpha": 0.5}),
    WindowJoinRequest("l", "r", ("k",), "at", "came", "10 ms", within="5 ms", by_key=True, only=("is_l", "is_r")),
]
CHOICES = [
    None,
    Choice("one table", "it reads one table"),
    Choice("operators", "it was asked for", TreeChoice({"t": 3}, "abc")),
    Choice("factorized", "", ViewTreeChoice(ORDER, "it is canonical", {"v": "a", "w": None}, ("x", "y")), {"x": 2.5}),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.strategy if choice else "open")
def test_json_gives_back_what_it_was_made_of(request_: Request, choice: Choice | None) -> None:
    definition = Definition(request_, choice)
    data = json.loads(json.dumps(definition.to_json()))
    assert Definition.from_json(data) == definition
    assert data["version"] == 3


def test_other_versions_are_refused() -> None:
    with pytest.raises(StorageError, match="version 1"):
        Definition.from_json({"kind": "view", "sql": "SELECT 1", "asked": {}, "chosen": {}})
    with pytest.raises(StorageError, match="version 4"):
        Definition.from_json({"version": 4})


def test_a_choice_is_added_to_what_was_chosen_before() -> None:
    definition = Definition(SqlRequest("SELECT 1")).with_choice("operators", plan=TreeChoice({"t": 1}), why="so")
    assert definition.with_choice("operators", shifts={"x": 1.0}).choice == Choice(
        "operators", "so", TreeChoice({"t": 1}), {"x": 1.0}
    )
    assert (definition.strategy, definition.why, definition.view_tree) == ("operators", "so", None)
    assert Definition(SqlRequest("SELECT 1")).strategy == ""


def test_wishes_say_what_was_given() -> None:
    assert Wishes().given() == {}
    assert Wishes("factorized", None, "a").given() == {"strategy": "factorized", "partition": "a"}
