"""Plans as text: what is read is what was written, or nothing is read."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

from headrace.engine.plan_text import OtherPlanError, from_json, to_json
from headrace.plan.expression import Expression, column
from headrace.plan.tree import JoinKind
from headrace.relation.types import SqlType

BIGINT = SqlType("bigint")
PRICE = column("price", SqlType("decimal", 10, 2))


def written(value: object) -> Any:
    return json.loads(json.dumps(to_json(value)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**63),
        0.1,
        float("inf"),
        "naïve",
        (),
        ((1, 2), [3, (4,)], frozenset({"a", "b"})),
        {"a": (1,), 3: None, (1, "x"): {}},
        Decimal("1.10"),
        datetime.date(1, 1, 1),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
        datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
        JoinKind.NULL_AWARE,
        Expression("Add", BIGINT, "price + 1", (PRICE, Expression("literal", BIGINT, "1", value=1)), nullable=False),
    ],
)
def test_what_is_read_is_what_was_written(value: object) -> None:
    found = from_json(written(value))
    assert (found, repr(found)) == (value, repr(value))


def test_equal_parts_are_written_once() -> None:
    assert len(to_json((PRICE,) * 50)["objects"]) == 2  # the column and its type


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="a plan holds a object"):
        to_json({"a": object()})


def other(**changes: Any) -> dict[str, Any]:
    return written(PRICE) | changes


@pytest.mark.parametrize(
    "data",
    [
        {},
        other(root=["object", 7]),
        other(root=["unknown", 1]),
        other(classes={"headrace.plan.expression:Expression": ["op"]}),
        other(classes={"headrace.plan.expression:Gone": []}),
        other(classes={"headrace.gone:Gone": []}),
        # Only dataclasses and enums of Headrace are made, whatever a file says.
        other(classes={"subprocess:Popen": ["args"]}),
        other(classes={"headrace.engine.engine:Engine": ["spark", "location"]}),
        other(root=["enum", "os:system", "true"]),
        other(root=["enum", "headrace.plan.tree:JoinKind", "SIDEWAYS"]),
    ],
)
def test_another_text_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(OtherPlanError):
        from_json(data)
