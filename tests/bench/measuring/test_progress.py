"""Throughput over the stream: parts have all batches once, and end where the stream does."""

from __future__ import annotations

import pytest

from headrace.bench.measuring.progress import progress


@pytest.mark.parametrize("parts", [1, 3, 7, 20])
@pytest.mark.parametrize("done", [1, 13, 40])
def test_parts_have_every_batch_once(parts: int, done: int) -> None:
    rows = [100] * 39 + [7]
    seconds = [0.5 + number % 3 for number in range(40)]
    total = sum(rows)
    found = progress(rows[:done], seconds[:done], total, parts, list(range(done)))
    assert found[-1]["share"] == pytest.approx(sum(rows[:done]) / total)
    assert len(found) <= parts
    taken, before = 0.0, 0.0
    for part in found:
        taken += (part["share"] - before) * total / part["rows_per_s"]
        before = part["share"]
    assert taken == pytest.approx(sum(seconds[:done]))
    assert found[-1]["state_mb"] == (done - 1) / 1e6


def test_large_batches_make_fewer_parts() -> None:
    assert progress([50, 50], [1.0, 2.0], 100, 20) == [
        {"share": 0.5, "rows_per_s": 50.0},
        {"share": 1.0, "rows_per_s": 25.0},
    ]
