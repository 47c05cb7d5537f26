"""How plans are spread over buckets: which variable, which relations are replicated, and when there are more stages."""

import numpy as np
import pytest
from tests.factorized.harness import InMemory, natural_join

from headrace.factorized.order_text import to_json
from headrace.factorized.planner import Options, moments_view, plan_join
from headrace.plan.hypergraph import Hypergraph, Relation
from headrace.rings.covariance import unpack

STAR = {"A": ("k", "a"), "B": ("k", "b"), "C": ("k", "c")}
SNOWFLAKE = {
    "inventory": ("locn", "dateid", "ksn", "units"),
    "location": ("locn", "zip", "area"),
    "census": ("zip", "population"),
    "item": ("ksn", "price"),
    "weather": ("locn", "dateid", "rain"),
}
PATH = {"R": ("a", "b", "x"), "S": ("b", "c", "y"), "T": ("c", "d", "z"), "U": ("d", "e", "w")}


def planned(schemas: dict, features: tuple[str, ...], rows: dict[str, int], **options):
    return moments_view(natural_join(schemas), (), features, Options(rows=rows, **options), 4, 7, {})[0].plan


def stages(plan) -> list[tuple[str, str | None, list[str]]]:
    out = []
    for stage in plan.stages:
        shared = [plan.views[t.leaf].name for t in stage.triggers if plan.views[t.leaf].replicated]
        out.append((plan.views[stage.root].name, stage.partition, shared))
    return out


def test_a_star_is_one_stage_by_its_centre_and_replicates_nothing() -> None:
    for rows in (1, 10**9):
        plan = planned(STAR, ("a", "b", "c"), dict.fromkeys(STAR, rows))
        assert stages(plan) == [("V_@k[]", "k", [])]


def test_a_snowflake_with_small_dimensions_is_one_stage_and_replicates_them() -> None:
    rows = {"inventory": 84_000_000, "location": 1300, "census": 1300, "item": 5600, "weather": 1_100_000}
    plan = planned(SNOWFLAKE, ("units", "area", "population", "price", "rain"), rows)
    assert stages(plan) == [("V_@locn[]", "locn", ["V_item[ksn]", "V_census[zip]"])]


def test_a_short_path_of_small_relations_is_one_stage() -> None:
    plan = planned(PATH, ("x", "y", "z", "w"), dict.fromkeys(PATH, 1000))
    assert len(plan.stages) == 1
    assert plan.replicated_relations


def test_a_path_of_large_relations_takes_several_stages_and_replicates_no_relation() -> None:
    plan = planned(PATH, ("x", "y", "z", "w"), dict.fromkeys(PATH, 10**9))
    assert plan.levels > 1
    assert not plan.replicated_relations
    # Every relation's changes come into one stage, and every stage but the last passes one view on.
    inputs = [trigger.relation for stage in plan.stages for trigger in stage.triggers]
    assert sorted(name for name in inputs if not name.startswith("=")) == sorted(PATH)
    assert sum(name.startswith("=") for name in inputs) == len(plan.stages) - 1


def test_one_variable_can_be_asked_for() -> None:
    plan = planned(PATH, ("x",), dict.fromkeys(PATH, 10**9), partition="c")
    assert [(stage.partition, stage.why) for stage in plan.stages] == [("c", "it was asked for")]
    assert set(plan.replicated_relations) == {"R", "U"}


def test_a_choice_made_before_is_kept() -> None:
    large = Options(rows=dict.fromkeys(PATH, 10**9))
    view, made = moments_view(natural_join(PATH), (), ("x", "w"), large, 4, 7, {})
    first = view.plan
    chosen = {first.views[stage.root].name: stage.partition for stage in first.stages}
    assert made.order is not None
    again = planned(PATH, ("x", "w"), dict.fromkeys(PATH, 1), order=to_json(made.order), stages=chosen)
    assert stages(again) == stages(first)


def test_one_relation_without_keys_is_shared_out_by_rows() -> None:
    plan = planned({"R": ("x", "y")}, ("x", "y"), {"R": 10})
    assert stages(plan) == [("V_R[]", None, [])]


@pytest.mark.parametrize("rows", [1, 10**9])
@pytest.mark.parametrize("groups", [(), ("c",), ("a", "e")])
def test_any_number_of_stages_gives_the_same_moments(rows: int, groups: tuple[str, ...]) -> None:
    rng = np.random.default_rng(3)
    features = ("x", "y", "z", "w", "d")
    view, _ = moments_view(natural_join(PATH), groups, features, Options(rows=dict.fromkeys(PATH, rows)), 3, 7, {})
    assert (view.plan.levels > 1) == (rows > 1)
    memory = InMemory(view)
    tables: dict[str, list[tuple[int, ...]]] = {name: [] for name in PATH}
    for _ in range(5):
        changes = {}
        for name, variables in PATH.items():
            new = [tuple(int(v) for v in rng.integers(0, 4, len(variables))) for _ in range(6)]
            old = [tables[name].pop(int(rng.integers(len(tables[name])))) for _ in range(3) if tables[name]]
            tables[name] += new
            columns = {v: np.array([row[i] for row in new + old]) for i, v in enumerate(variables)}
            changes[name] = (columns, np.array([1] * len(new) + [-1] * len(old)))
        memory.step(changes)
        assert_moments(memory, tables, features, groups)


def assert_moments(memory: InMemory, tables: dict, features: tuple[str, ...], groups: tuple[str, ...]) -> None:
    import pandas as pd

    joined = None
    for name, rows in tables.items():
        frame = pd.DataFrame(rows, columns=list(PATH[name]))
        joined = frame if joined is None else joined.merge(frame)
    assert joined is not None
    expected = {}
    for key, part in joined.groupby(list(groups)) if groups else [((), joined)]:
        values = part[list(features)].to_numpy(float)
        expected[tuple(key)] = (len(part), values.sum(axis=0), values.T @ values)
    run = memory.contents("moments")
    stored = memory.view.algebra.features(memory.view.plan.root)
    order = [stored.index(name) for name in features]
    found = {}
    if run is not None and run.rows:
        decoded = memory.view.answer.keys.decode(run.words) if groups else []
        for i in range(run.rows):
            count, sums, cofactor = unpack(run.payload[0][i], len(features))
            if count:
                key = tuple(column[i].as_py() for column in decoded)
                found[key] = (count, sums[order], cofactor[np.ix_(order, order)])
    expected = {key: value for key, value in expected.items() if value[0]}
    assert found.keys() == expected.keys()
    for key, (count, sums, cofactor) in expected.items():
        assert found[key][0] == count
        np.testing.assert_allclose(found[key][1], sums)
        np.testing.assert_allclose(found[key][2], cofactor)


def test_a_long_path_runs_in_one_bucket() -> None:
    """Each variable is in two relations only: all buckets would handle the other eighteen."""
    schemas = {f"E{i}": (f"X{i}", f"X{i + 1}") for i in range(20)}
    relations = tuple(Relation(name, variables) for name, variables in schemas.items())
    plan = plan_join(Hypergraph(relations), (), Options(), 4).plan
    assert (plan.partition, plan.levels, plan.replicated_relations) == (None, 1, ())
    assert "nearly the same work" in plan.stages[-1].why
    asked = plan_join(Hypergraph(relations), (), Options(partition="X10"), 4).plan
    assert asked.partition == "X10"
    short = plan_join(Hypergraph(relations[:3]), (), Options(), 4).plan
    assert short.partition is not None
