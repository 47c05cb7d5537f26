from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.bench.covariance.paper import NUMBER, Input, inputs_of, on_paper
from headrace.datasets import dataset
from headrace.factorized.maintenance import MaintenancePlan
from headrace.factorized.planner import Options, plan_join
from headrace.plan.hypergraph import Hypergraph, Relation
from headrace.rings.covariance import width

STARS = Input("stars", rows=1e6, keys=1e4, key_columns=1, degree=2, replicated=False, matches=1e6, largest=0.0)


def test_even_work_speeds_up_with_the_cores() -> None:
    assert on_paper([STARS], 2, 64)["speed_up_at_most"] == pytest.approx(64)
    assert on_paper([STARS], 2, 1)["speed_up_at_most"] == 1
    assert on_paper([STARS], 2, 64)["rows_a_bucket"] == 1e6 / 64
    assert on_paper([STARS], 2, 64)["partial_answers_bytes"] == 64 * NUMBER * width(2)


def test_a_frequent_value_bounds_the_speed_up() -> None:
    skewed = on_paper([replace(STARS, largest=0.25)], 2, 64)
    assert skewed["rows_of_the_largest_bucket"] == 0.25e6
    assert skewed["speed_up_at_most"] < 64
    few = [on_paper([replace(STARS, values=values)], 2, 64)["speed_up_at_most"] for values in (64, 10_000, 10**9)]
    assert few == sorted(few)
    assert few[-1] == pytest.approx(64, rel=1e-3)


def test_replicated_changes_go_to_every_bucket() -> None:
    everywhere = replace(STARS, replicated=True)
    some, more = on_paper([everywhere], 2, 8), on_paper([everywhere], 2, 64)
    assert some["exchanged_bytes"] == 0
    assert more["replicated_bytes"] > 8 * some["replicated_bytes"] * 0.99
    assert more["rows_a_bucket"] == everywhere.keys
    assert more["speed_up_at_most"] < 64


def test_more_tasks_sum_less_before_the_exchange() -> None:
    sent = [STARS.sent(tasks) for tasks in (1, 8, 64, 10**9)]
    assert sent[0] == pytest.approx(STARS.keys)
    assert sent == sorted(sent)
    assert sent[-1] == pytest.approx(STARS.rows, rel=1e-3)
    assert replace(STARS, keys=1.0).sent(64) == 64


def planned(options: Options) -> tuple[MaintenancePlan, dict[str, pa.Table]]:
    data = dataset("retailer")
    relations = tuple(Relation(spec.name, tuple(spec.schema.names)) for spec in data.tables)
    plan = plan_join(Hypergraph(relations, ()), data.features, replace(options, order=data.order), 4).plan
    return plan, data.generate(0.01)


def described(plan: MaintenancePlan, tables: dict[str, pa.Table]) -> dict[str, Input]:
    degrees, entries = [len(view.lifted) for view in plan.views], dict.fromkeys(range(len(plan.views)), 1000)
    return {one.name: one for one in inputs_of(plan, degrees, entries, tables)}


def test_inputs_of_a_plan() -> None:
    plan, tables = planned(Options(partition="locn"))
    found = described(plan, tables)
    assert set(found) == set(tables)
    assert found["inventory"].rows == found["inventory"].keys == tables["inventory"].num_rows
    assert found["inventory"].values == len(pa.compute.unique(tables["inventory"]["locn"]))
    assert 0 < found["inventory"].largest < 1
    assert (found["item"].replicated, found["item"].values) == (True, 0)
    assert all(one.matches > 0 for one in found.values())
    assert list(described(plan, {"inventory": tables["inventory"]})) == ["inventory"]


def test_inputs_of_a_plan_in_stages() -> None:
    whole, tables = planned(Options())
    names = [view.name for view in whole.views]
    low = next(name for name in names if name.startswith("V_@ksn"))
    plan, _ = planned(Options(stages={low: "ksn", names[whole.root]: "locn"}))
    found = described(plan, tables)
    assert set(found) == {*tables, low}
    assert (found["inventory"].replicated, found["item"].replicated) == (False, False)
    assert (found[low].lifted, found[low].rows) == (False, 1000)  # no more than it has
    assert 0 < found[low].largest < 1
