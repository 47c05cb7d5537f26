"""Whether a series of samples grows, with series of which that is known."""

from __future__ import annotations

import random

import pytest
from tests.seeds import seeds

from headrace.bench.soak.flatness import Measure, slope, trend

MEASURE = Measure("driver", "MB", "memory", relative=0.05, absolute=4.0)


@pytest.mark.check
@seeds("flatness", 5)
def test_a_third_of_outliers_does_not_hide_growth_nor_feign_it(seed: int) -> None:
    rng = random.Random(seed)
    times = [float(i) for i in range(60)]
    for rise in (0.0, 0.5):
        values = [100 + rise * time + rng.gauss(0, 0.5) for time in times]
        for at in rng.sample(range(60), 18):
            values[at] += rng.choice([50, 500])
        found = trend(MEASURE, times, values)
        assert found.growth == pytest.approx(59 * rise, abs=4)
        assert found.grows == (rise > 0)


def test_what_rises_by_less_than_it_may_is_flat() -> None:
    times = [0.0, 10.0, 20.0, 30.0]
    few, many = [10.0, 11.0, 12.0, 13.0], [1000.0, 1010.0, 1020.0, 1030.0]
    assert slope(times, few) == pytest.approx(0.1)
    assert (trend(MEASURE, times, few).tolerance, trend(MEASURE, times, few).grows) == (4.0, False)
    assert (trend(MEASURE, times, many).tolerance, trend(MEASURE, times, many).grows) == (50.75, False)
    assert trend(MEASURE, times, [10.0, 12.0, 14.0, 16.0]).grows
    assert not trend(MEASURE, times, [16.0, 14.0, 12.0, 10.0]).grows  # it falls


def test_samples_at_one_moment_have_no_slope() -> None:
    assert slope([0.0, 0.0, 1.0], [1.0, 5.0, 3.0]) == 0.0
