"""What went through the operators of a view in the last step: as numbers in the commit log, and read from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass

from headrace.explain.report import Subject
from headrace.operators.kernel import Passed, Traffic, ViewChange


@dataclass(frozen=True)
class Passing:
    """What the last step brought to an operator, or had it give. Who is updated is neither inserted nor deleted.

    Rows of a side that is in every bucket are counted in each. What an aggregate takes is summed on the way and counted
    as inserted: whether a group comes, goes or changes is seen only when it is added to its state.
    """

    inserted: int = 0
    deleted: int = 0
    updated: int = 0

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted or self.updated)

    def __str__(self) -> str:
        return f"+{self.inserted:,} -{self.deleted:,} ~{self.updated:,}"


def traffic_numbers(traffic: Mapping[str, Traffic], answer: ViewChange) -> dict[str, list[int]]:
    """What a step brought to each operator of a view, as numbers that the commit log can hold.

    They are those of `Passed`, of what was taken and of what was given. The answer gives nothing to anyone, so what
    the view changed stands in its place.
    """
    last = max(traffic, key=int, default="")
    changed = Passed(answer.inserted + answer.updated, answer.deleted + answer.updated, answer.updated)
    return {
        number: [*astuple(one.taken), *astuple(changed if number == last and answer else one.given)]
        for number, one in traffic.items()
    }


def passing(subject: Subject) -> dict[int, tuple[Passing, Passing]] | None:
    """What went through each operator of a view in the last step; None if there was none."""
    if not subject.last_step:
        return None
    found = {}
    for number, numbers in subject.last_step.get("operators", {}).get(subject.name, {}).items():
        taken, given = (
            Passing(inserted - updated, deleted - updated, updated)
            for inserted, deleted, updated in (numbers[:3], numbers[3:])
        )
        found[int(number)] = (taken, given)
    return found
