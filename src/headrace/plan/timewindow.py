"""Windows of time, found again in the arithmetic that Spark's analyser makes of `window(ts, '10 minutes')`.

The analyser writes each bound of a window as a dozen operations on microseconds. Two readers want to know what these
operations mean: native evaluation, which has one formula for all of them, and views whose windows close, which have to
know how long each window is and of which column.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.expression import Expression
from headrace.relation.duration import Duration

_CONVERSION = "PreciseTimestampConversion"
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class WindowBound:
    """The start of the window that a time lies in, or its end; all lengths in microseconds.

    Windows start at `offset` plus any multiple of `slide` since 1970-01-01 00:00 UTC, and are `duration` long. `back`
    tells which of the windows that a time lies in this is: the one that started last, or one some slides before it.
    """

    time: Expression
    slide: int
    offset: int
    back: int
    duration: int = 0  # the length of the window, for an end; 0 for a start

    @property
    def is_end(self) -> bool:
        return self.duration > 0

    @property
    def sql(self) -> str:
        """The bound in SQL as people write it, in terms of windows that are as long as the slide and do not overlap."""
        slide, offset = (str(Duration(length)) for length in (self.slide, self.offset % self.slide))
        lengths = [slide] if self.offset % self.slide == 0 else [slide, slide, offset]
        window = f"window({', '.join([self.time.sql, *map(repr, lengths)])})"
        moved = self.duration - self.back
        if moved in (0, self.slide):
            return f"{window}.{'end' if moved else 'start'}"
        return f"({window}.start {'+' if moved > 0 else '-'} INTERVAL {Duration(abs(moved))})"


def window_bound(node: Expression) -> WindowBound | None:
    """The window bound that an expression is; None if it is neither the start nor the end of a window."""
    while node.op in ("KnownNullable", "KnownNotNull"):
        (node,) = node.args
    if node.op != _CONVERSION or node.type.kind not in _TIMES:
        return None
    (micros,) = node.args
    length = 0
    if micros.op == "Add":
        micros, added = micros.args
        length = _literal(added) or 0
        if length <= 0:
            return None
    return _start(micros, length)


def _start(micros: Expression, duration: int) -> WindowBound | None:
    """Read `t - (the time since the last window started) - back`."""
    outer = _parts(micros, "Subtract")
    inner = None if outer is None else _parts(outer[0], "Subtract")
    if outer is None or inner is None:
        return None
    back, (micros_of, since) = _literal(outer[1]), inner
    if back is None or micros_of.op != _CONVERSION or micros_of.args[0].type.kind not in _TIMES:
        return None
    # CASE WHEN r < 0 THEN r + slide ELSE r END, where r is (t - offset) % slide
    if since.op != "CaseWhen" or len(since.args) != 3:
        return None
    negative, wrapped, remainder = since.args
    shifted = _parts(remainder, "Remainder")
    moved = None if shifted is None else _parts(shifted[0], "Subtract")
    if shifted is None or moved is None or moved[0] != micros_of:
        return None
    slide, offset = _literal(shifted[1]), _literal(moved[1])
    if slide is None or offset is None or slide <= 0:
        return None
    below, plus = _parts(negative, "LessThan"), _parts(wrapped, "Add")
    if below is None or below[0] != remainder or _literal(below[1]) != 0:
        return None
    if plus is None or plus[0] != remainder or _literal(plus[1]) != slide:
        return None
    return WindowBound(micros_of.args[0], slide, offset, back, duration)


def _parts(node: Expression, op: str) -> tuple[Expression, Expression] | None:
    return (node.args[0], node.args[1]) if node.op == op and len(node.args) == 2 else None


def _literal(node: Expression) -> int | None:
    return node.value if node.op == "literal" and isinstance(node.value, int) else None
