"""The time zone of an operation. In UTC, days begin at whole numbers, and clocks are never moved."""

from __future__ import annotations

from headrace.plan.expression import Expression

_UTC = frozenset(["UTC", "Etc/UTC", "GMT", "Z", "+00:00"])


def is_utc(node: Expression) -> bool:
    """Whether the time zone that an operation was planned with is UTC."""
    return node.value in _UTC
