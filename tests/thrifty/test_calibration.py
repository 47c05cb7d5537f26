from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from headrace.thrifty.calibration import OURS, fitted, from_json, probe, to_json
from headrace.thrifty.cost import UNITS


def test_probes_are_made_and_scale_the_units() -> None:
    asked: list[int] = []
    found = probe(asked.append, lambda: False)
    assert found is not None
    assert min(asdict(found).values()) > 0
    assert sorted(set(asked)) == [1, 10_000_000]
    assert fitted(replace(OURS, group=2 * OURS.group)).group == 2 * UNITS.group
    assert fitted(replace(OURS, job=2 * OURS.job)) == replace(UNITS, job=2 * UNITS.job)
    assert fitted(replace(OURS, join=1e9 * OURS.join)).join == 20 * UNITS.join  # that cannot be


def test_no_probe_is_made_once_it_is_stopped() -> None:
    asked: list[int] = []
    assert probe(asked.append, lambda: len(asked) == 2) is None
    assert asked == [1, 1]


def test_units_are_plain_values() -> None:
    assert from_json(to_json(UNITS)) == UNITS
    for wrong in ({"group": 0.0}, {"group": "much"}, {"what": 1.0}):
        with pytest.raises((ValueError, TypeError)):
            from_json(wrong)
