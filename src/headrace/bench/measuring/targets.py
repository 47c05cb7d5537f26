"""The targets of a benchmark: what is asked for, what a run measured, and whether that meets it.

A target holds for certain sizes. A run of other sizes, or without the cases that are compared, says so and why, and is
never told to meet it. Where a peer ran out of time, a ratio to it is only known to be "at least" so much: that is
enough to meet a target, and never enough to miss it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

Verdict = dict[str, Any]
"""`target`, `value` and `met`; without an answer, `met` is None and `not_measured` says why."""

NO_CASE = "the run has no such case"
_WRONG = "an answer of the run is wrong"


def verdict(
    name: str, sign: str, bound: float, value: float | None, *, why_not: str = "", at_least: str = ""
) -> Verdict:
    """Compare a value with its target.

    Parameters
    ----------
    sign : ">=" or "<=".
    why_not : why the value, if there is one, says nothing about the target.
    at_least : why the value is only known to be at least so large, such as a peer that ran out of time.

    >>> verdict("speed-up", ">=", 10, 12.0)
    {'target': 'speed-up >= 10', 'value': 12.0, 'met': True}
    >>> verdict("speed-up", ">=", 10, None)
    {'target': 'speed-up >= 10', 'value': None, 'met': None, 'not_measured': 'the run has no such case'}
    >>> verdict("speed-up", ">=", 10, 7.0, at_least="the peer ran out of time")["not_measured"]
    'it is at least 7, as the peer ran out of time'
    """
    found: Verdict = {"target": f"{name} {sign} {_option(bound)}", "value": value, "met": None}
    if why_not or value is None:
        return found | {"not_measured": why_not or NO_CASE}
    holds = value >= bound if sign == ">=" else value <= bound
    if not at_least:
        return found | {"met": holds}
    found["at_least"] = at_least
    if sign == ">=" and holds:
        return found | {"met": True}
    if sign == "<=" and not holds:
        return found | {"met": False}
    return found | {"not_measured": f"it is at least {_number(value)}, as {at_least}"}


def other_options(config: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Say by which options a run differs from the one that a target is for; empty if it does not differ.

    >>> other_options({"scale": 0.1, "batch": 10, "cores": 2}, {"scale": 5.0, "cores": 2})
    'the target is for scale 5, and the run has 0.1'
    """
    differ = [name for name, value in wanted.items() if config.get(name) != value]
    said = [
        f"{name.replace('_', ' ')} {_option(wanted[name])}, and the run has {_option(config[name])}" for name in differ
    ]
    return f"the target is for {'; for '.join(said)}" if said else ""


def judged(verdicts: Iterable[Verdict], results: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Return the verdicts of a run; none is met while one of its answers is wrong."""
    wrong = any("wrong" in row for row in results)
    return [found | {"met": False, "note": _WRONG} if wrong and found["met"] else found for found in verdicts]


def target_lines(verdicts: Iterable[Verdict]) -> Group:
    """Return one line per target, for the screen."""
    return Group(*(Text(_line(found)) for found in verdicts))


def _line(found: Verdict) -> str:
    if found["met"] is None:
        return f"{'NOT MEASURED':13}{found['target']}: {found['not_measured']}"
    value = "no value" if found["value"] is None else _number(found["value"])
    least = "at least " if found.get("at_least") else ""
    more = [found[key] for key in ("note", "at_least") if key in found]
    more += [f"{found['queries']} queries"] if "queries" in found else []
    about = f" ({', '.join(more)})" if more else ""
    return f"{'met' if found['met'] else 'NOT MET':13}{found['target']}: {least}{value}{about}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _option(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"
