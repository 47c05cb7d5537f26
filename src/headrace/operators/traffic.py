"""What went through the operators of a view in the last step: as numbers in the commit log, and read from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple

from headrace.explain.report import Subject
from headrace.operators.kernel import Traffic, ViewChange


def traffic_numbers(traffic: Mapping[str, Traffic], answer: ViewChange) -> dict[str, list[int]]:
    """What a step brought to each operator of a view, as numbers that the commit log can hold.

    The answer gives nothing to anyone, so what the view changed stands in its place.
    """
    last = max(traffic, key=int, default="")
    return {
        number: [*astuple(one.taken), *astuple(answer if number == last and answer else one.given)]
        for number, one in traffic.items()
    }


def passing(subject: Subject) -> dict[int, tuple[ViewChange, ViewChange]] | None:
    """What went through each operator of a view in the last step; None if there was none."""
    if not subject.last_step:
        return None
    found = {}
    for number, numbers in subject.last_step.get("operators", {}).get(subject.name, {}).items():
        found[int(number)] = (ViewChange(*numbers[:3]), ViewChange(*numbers[3:]))
    return found
