"""How fresh a view has to be: goals, and the triggers that say when the data of a result is complete.

Without a goal every step brings a view up to date. A goal allows the engine to wait, and says for how long or at what
price; a trigger says when the next answer is wanted. The words are those of SQL:

    CREATE MATERIALIZED VIEW v TARGET LAG '5 seconds' EVERY '1 minute' AS SELECT ...
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from headrace.errors import SchemaError
from headrace.relation.duration import Duration

BEST, FAIL = "best", "fail"
_SECOND = 1_000_000


@dataclass(frozen=True, init=False)
class TargetLag:
    """The answer is at most this long behind the rows that have come, or behind the last row of a trigger's data.

    >>> print(TargetLag("5 s"))
    TARGET LAG '5 seconds'
    """

    kind: ClassVar[str] = "target lag"
    lag: Duration

    def __init__(self, lag: str | timedelta | Duration) -> None:
        _set(self, "lag", _longer_than_nothing("a target lag", lag))

    @property
    def given(self) -> str:
        return str(self.lag)

    @property
    def seconds(self) -> float:
        return self.lag.microseconds / _SECOND

    def __str__(self) -> str:
        return f"TARGET LAG '{self.lag}'"


@dataclass(frozen=True, init=False)
class FinalWork:
    """The work left when a trigger's data is complete, as a share of doing all of it then.

    >>> print(FinalWork(0.2))
    FINAL WORK 0.2
    """

    kind: ClassVar[str] = "final work"
    share: float

    def __init__(self, share: float) -> None:
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if not is_number or not 0 < share <= 1:
            raise SchemaError(
                f"final work {share!r} is not a share of all work", way_out="give a number above 0 and at most 1"
            )
        _set(self, "share", float(share))

    @property
    def given(self) -> float:
        return self.share

    def __str__(self) -> str:
        return f"FINAL WORK {self.share:g}"


@dataclass(frozen=True, init=False)
class Budget:
    """The CPU time that a view may take: it is as fresh as that allows.

    >>> print(Budget("10 cpu seconds per minute"))
    BUDGET '10 cpu seconds per minute'
    >>> round(Budget("10 cpu seconds per minute").share, 3)
    0.167
    """

    kind: ClassVar[str] = "budget"
    given: str
    microseconds: int
    per: Duration

    def __init__(self, given: str) -> None:
        match = _BUDGET.fullmatch(given.strip()) if isinstance(given, str) else None
        if match is None:
            raise _no_budget(given)
        try:
            # Durations are whole numbers, and half a second of CPU is a budget.
            unit = Duration.parse(f"1 {match['unit']}").microseconds
            per = match["per"].strip()
            period = Duration.parse(per if per[:1].isdigit() else f"1 {per}")
        except SchemaError as error:
            raise _no_budget(given) from error
        cpu = round(float(match["number"]) * unit)
        if not cpu or not period.microseconds:
            raise _no_budget(given)
        _set(self, "given", " ".join(given.split()))
        _set(self, "microseconds", cpu)
        _set(self, "per", period)

    @property
    def share(self) -> float:
        """CPU seconds for each second."""
        return self.microseconds / self.per.microseconds

    def __str__(self) -> str:
        return f"BUDGET '{self.given}'"


@dataclass(frozen=True)
class Manual:
    """Nothing happens until `refresh()` is called.

    >>> print(Manual())
    MANUAL
    """

    kind: ClassVar[str] = "manual"
    given: ClassVar[None] = None

    def __str__(self) -> str:
        return "MANUAL"


@dataclass(frozen=True, init=False)
class EveryRows:
    """An answer is wanted whenever so many changed rows have come.

    >>> print(EveryRows(100_000))
    EVERY 100000 ROWS
    """

    kind: ClassVar[str] = "every rows"
    rows: int

    def __init__(self, rows: int) -> None:
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
            raise SchemaError(f"a trigger every {rows!r} rows never fires", way_out="give a whole number above 0")
        _set(self, "rows", rows)

    @property
    def given(self) -> int:
        return self.rows

    def __str__(self) -> str:
        return f"EVERY {self.rows} ROWS"


@dataclass(frozen=True, init=False)
class Every:
    """An answer is wanted at the end of every such period: of every minute of the clock, say.

    >>> print(Every("1 minute"))
    EVERY '1 minute'
    """

    kind: ClassVar[str] = "every"
    period: Duration

    def __init__(self, period: str | timedelta | Duration) -> None:
        _set(self, "period", _longer_than_nothing("the period of a trigger", period))

    @property
    def given(self) -> str:
        return str(self.period)

    def __str__(self) -> str:
        return f"EVERY '{self.period}'"


@dataclass(frozen=True)
class AtWindowEnd:
    """An answer is wanted when a window of time is over by the watermark of the table.

    >>> print(AtWindowEnd())
    AT WINDOW END
    """

    kind: ClassVar[str] = "at window end"
    given: ClassVar[None] = None

    def __str__(self) -> str:
        return "AT WINDOW END"


@dataclass(frozen=True)
class OnRefresh:
    """An answer is wanted when `refresh()` is called.

    >>> print(OnRefresh())
    ON REFRESH
    """

    kind: ClassVar[str] = "on refresh"
    given: ClassVar[None] = None

    def __str__(self) -> str:
        return "ON REFRESH"


Goal = TargetLag | FinalWork | Budget | Manual
Trigger = EveryRows | Every | AtWindowEnd | OnRefresh

_GOALS: dict[str, type[Goal]] = {kind.kind: kind for kind in (TargetLag, FinalWork, Budget, Manual)}
_TRIGGERS: dict[str, type[Trigger]] = {kind.kind: kind for kind in (EveryRows, Every, AtWindowEnd, OnRefresh)}
_BUDGET = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(cpu[\s-]*)?(?P<unit>[a-z]+)\s+(per|a|every|/)\s+(?P<per>.+)", re.I)
_MANUAL_WAITS = (
    "MANUAL waits for refresh(), so nothing else fires it",
    "FINAL WORK 1.0 does all work at the trigger that you name; or leave the trigger out",
)
# Which goals do not go with which triggers, and why; None is no trigger. All other combinations mean something.
_REFUSED: dict[tuple[type[Goal], type[Trigger] | None], tuple[str, str]] = {
    (Manual, EveryRows): _MANUAL_WAITS,
    (Manual, Every): _MANUAL_WAITS,
    (Manual, AtWindowEnd): _MANUAL_WAITS,
    (FinalWork, None): (
        "FINAL WORK is the work left when the data of a trigger is complete, and there is no trigger",
        "name one: EVERY n ROWS, EVERY 'time', AT WINDOW END or ON REFRESH",
    ),
}


@dataclass(frozen=True)
class Freshness:
    """A goal with its trigger.

    Parameters
    ----------
    trigger : None if an answer is wanted as soon as the goal allows it.
    infeasible : what to do about a goal that cannot be reached: come as near as possible ("best"), or refuse ("fail").

    >>> print(Freshness(FinalWork(0.1), EveryRows(1000)))
    FINAL WORK 0.1 EVERY 1000 ROWS
    >>> print(Freshness(Manual()))
    MANUAL ON REFRESH
    """

    goal: Goal
    trigger: Trigger | None = None
    infeasible: str = BEST

    def __post_init__(self) -> None:
        if not isinstance(self.goal, Goal):
            raise SchemaError(
                f"{self.goal!r} is no goal",
                way_out="give hr.TargetLag('5 s'), hr.FinalWork(0.2), hr.Budget('10 cpu seconds per minute') or "
                "hr.Manual()",
            )
        if self.trigger is not None and not isinstance(self.trigger, Trigger):
            raise SchemaError(
                f"{self.trigger!r} is no trigger",
                way_out="give hr.EveryRows(100_000), hr.Every('1 minute'), hr.AtWindowEnd() or hr.OnRefresh()",
            )
        if self.infeasible not in (BEST, FAIL):
            raise SchemaError(f"infeasible={self.infeasible!r} is not known", way_out="use 'best' or 'fail'")
        refused = _REFUSED.get((type(self.goal), None if self.trigger is None else type(self.trigger)))
        if refused is not None:
            raise SchemaError(refused[0], way_out=refused[1])
        if isinstance(self.goal, Manual) and self.trigger is None:
            _set(self, "trigger", OnRefresh())

    def __str__(self) -> str:
        return str(self.goal) if self.trigger is None else f"{self.goal} {self.trigger}"

    def to_json(self) -> dict[str, Any]:
        """The goal as plain values."""
        trigger = None if self.trigger is None else [self.trigger.kind, self.trigger.given]
        return {"goal": [self.goal.kind, self.goal.given], "trigger": trigger, "infeasible": self.infeasible}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Freshness:
        goal, trigger = data["goal"], data["trigger"]
        return cls(
            _made(_GOALS[goal[0]], goal[1]),
            None if trigger is None else _made(_TRIGGERS[trigger[0]], trigger[1]),
            data["infeasible"],
        )


def freshness_of(
    name: str, goal: Goal | Freshness | None, trigger: Trigger | None, infeasible: str
) -> Freshness | None:
    """How fresh a view has to be, from the options of its user."""
    if goal is None:
        if trigger is not None:
            raise SchemaError(
                f"view {name!r} has the trigger {trigger}, and no goal",
                way_out="add one, as in goal=hr.TargetLag('5 s'); FinalWork(1.0) does all work at the trigger",
            )
        return None
    if isinstance(goal, Freshness):
        given = goal.infeasible if infeasible == BEST else infeasible
        return Freshness(goal.goal, goal.trigger if trigger is None else trigger, given)
    return Freshness(goal, trigger, infeasible)


def changed_goal(before: Freshness | None, goal: Goal | Freshness | None) -> Freshness | None:
    """The new goal of a view; a goal without a trigger keeps the trigger that the view has, if that goes together."""
    if goal is None or isinstance(goal, Freshness):
        return goal
    if before is not None and before.trigger is not None:
        with suppress(SchemaError):
            return Freshness(goal, before.trigger, before.infeasible)
    return Freshness(goal)


def _made(kind: type[Any], given: Any) -> Any:
    return kind() if given is None else kind(given)


def _set(thing: object, name: str, value: object) -> None:
    """Set a field of a frozen object while it is made."""
    object.__setattr__(thing, name, value)


def _longer_than_nothing(what: str, given: object) -> Duration:
    found = Duration.parse(given)
    if not found.microseconds:
        raise SchemaError(f"{what} of 0 seconds cannot be met", way_out="give a longer time, as in '1 second'")
    return found


def _no_budget(given: object) -> SchemaError:
    return SchemaError(f"{given!r} is no budget", way_out="write CPU time per time, as in '10 cpu seconds per minute'")
