"""How many rows went through the operators of a view in the last step, as the commit log stores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

from headrace.explain.report import Subject
from headrace.operators.kernel import Traffic, ViewChange


def traffic_numbers(traffic: Mapping[str, Traffic], answer: ViewChange) -> dict[str, list[int]]:
    """What each operator of a view took and gave in a step, as numbers that the commit log can hold.

    The topmost operator gives no rows to another one, so the change of the view stands in that place.
    """
    last = max(traffic, key=int, default="")
    return {
        number: [*astuple(one.taken), *astuple(answer if number == last and answer else one.given)]
        for number, one in traffic.items()
    }


def passing(subject: Subject) -> dict[int, tuple[ViewChange, ViewChange]] | None:
    """What each operator of a view took and gave in the last step; None if there was no step yet."""
    if not subject.last_step:
        return None
    found = {}
    for number, numbers in subject.last_step.get("operators", {}).get(subject.name, {}).items():
        found[int(number)] = (ViewChange(*numbers[:3]), ViewChange(*numbers[3:]))
    return found
