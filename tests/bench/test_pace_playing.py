"""Passes of the pace benchmark that are measured several times."""

from __future__ import annotations

import pyarrow as pa

from headrace.bench.pace.arrival import Stream
from headrace.bench.pace.playing import Pass, Played, middle
from headrace.plan.tree import Tree
from headrace.thrifty.observed import Flushed
from headrace.thrifty.unit_costs import Passes


def passed(held: float, *cpu: float) -> Pass:
    flushes = [Flushed({}, seconds, is_last=i == len(cpu) - 1) for i, seconds in enumerate(cpu)]
    played = Played(Tree(()), Passes(), {}, flushes, held, pa.table({"a": [1]}))
    return Pass({"v": played}, Stream([], {}), held, held, held)


def test_times_are_medians_flush_by_flush() -> None:
    found = middle([passed(3.0, 1.0, 9.0), passed(1.0, 2.0, 2.0), passed(2.0, 8.0, 3.0)])
    played = found.views["v"]
    assert [flush.cpu for flush in played.flushes] == [2.0, 3.0]
    assert (played.held, played.cpu, played.final_cpu) == (2.0, 7.0, 3.0)
    assert (found.seconds, found.python_cpu, found.java_cpu) == (2.0, 2.0, 2.0)
