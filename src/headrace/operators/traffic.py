"""How many rows went through the operators of a view in the last step, and what that cost, as the log stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from headrace.explain.report import Subject
from headrace.operators.kernel import Traffic, ViewChange


def traffic_numbers(traffic: Mapping[str, Traffic], answer: ViewChange) -> dict[str, list[float]]:
    """What each operator of a view took and gave in a step, and its CPU seconds, as numbers for the commit log.

    The topmost operator gives no rows to another one, so the change of the view stands in that place.
    """
    last = max(traffic, key=int, default="")
    return {
        number: [*astuple(one.taken), *astuple(answer if number == last and answer else one.given), round(one.cpu, 6)]
        for number, one in traffic.items()
    }


def passing(subject: Subject) -> dict[int, tuple[ViewChange, ViewChange]] | None:
    """What each operator of a view took and gave in the last step; None if there was no step yet."""
    if not subject.last_step:
        return None
    found = {}
    for number, numbers in subject.last_step.get("operators", {}).get(subject.name, {}).items():
        found[int(number)] = (ViewChange(*numbers[:3]), ViewChange(*numbers[3:6]))
    return found


def cost_of(step: Mapping[str, Any], view: str) -> dict[int, tuple[int, float]]:
    """Per operator of a view the changed rows that it took and gave in a step, and its CPU seconds."""
    found = step.get("operators", {}).get(view, {})
    return {int(number): (_gross(numbers[:3]) + _gross(numbers[3:6]), numbers[6]) for number, numbers in found.items()}


def _gross(numbers: Sequence[int]) -> int:
    inserted, deleted, updated = numbers
    return inserted + deleted + 2 * updated
