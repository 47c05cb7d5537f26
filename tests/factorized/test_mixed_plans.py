"""Plans with categorical features over random joins: maintained = recomputed, any batching, deletes to nothing.

Some categories are numbers, whose codes are the numbers, and some are texts, whose codes are hashes. Values are small
integers, which doubles add exactly: every comparison is for equality.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from tests.factorized.harness import InMemory, natural_join
from tests.factorized.shapes import EXAMPLE, TRIANGLE, Schemas, hypergraph
from tests.factorized.test_maintenance_plans import Bag, Case, described, state

from headrace.factorized.join_view import JoinView
from headrace.factorized.mixed_reading import mixed_moments
from headrace.factorized.planner import Options, moments_view
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Moments
from headrace.plan.hypergraph import Hypergraph
from headrace.relation.arrangement import alive

Key = tuple[object, ...]


@dataclass
class MixedCase(Case):
    """A random join with features of both kinds."""

    categorical: tuple[str, ...] = ()
    texts: str = ""

    @classmethod
    def draw(cls, seed: int, schemas: Schemas | None = None) -> MixedCase:
        case = super().draw(seed, schemas)
        assert isinstance(case, MixedCase)
        rng = random.Random(-seed)
        left = [v for v in hypergraph(case.schemas).variables if v not in (*case.groups, *case.features)]
        case.categorical = (*case.features[1:], *(v for v in left if rng.random() < 0.6)) or case.features
        case.features = case.features[:1] if case.features != case.categorical else ()
        case.texts = "".join(v for v in hypergraph(case.schemas).variables if rng.random() < 0.5)
        case.texts = "".join(v for v in case.texts if v not in case.features)
        return case

    @cached_property
    def query(self) -> Hypergraph:
        whole = hypergraph(self.schemas)
        wanted = {*whole.join_variables, *self.features, *self.groups, *self.categorical}
        return hypergraph({n: tuple(v for v in vs if v in wanted) for n, vs in self.schemas.items()}, self.groups)

    def view(self, buckets: int, **options: object) -> JoinView:
        join = natural_join(self.schemas, texts=self.texts)
        chosen = Options(static=self.static, **options)  # type: ignore[arg-type]
        return moments_view(join, self.groups, self.features, chosen, buckets, 7, {}, self.categorical)[0]

    def value(self, variable: str, number: int) -> object:
        return f"{variable.lower()}{number}" if variable in self.texts else number


def apply(memory: InMemory, step: Bag, case: MixedCase) -> None:
    changes = {}
    for name, change in step.items():
        tuples = list(change)
        columns = {
            v: np.array([case.value(v, row[i]) for row in tuples], object if v in case.texts else np.int64)
            for i, v in enumerate(case.schemas[name])
        }
        changes[name] = columns, np.array([change[row] for row in tuples], np.int64)
    memory.step(changes)


def play(view: JoinView, steps: list[Bag], case: MixedCase) -> InMemory:
    memory = InMemory(view)
    for step in steps:
        apply(memory, step, case)
    return memory


def recomputed(data: Bag, case: MixedCase) -> dict[Key, object]:
    """All combinations of rows that agree: no plan, no order, no incremental anything."""
    joined: list[tuple[dict[str, int], int]] = [({}, 1)]
    for name, variables in case.schemas.items():
        bound = [(dict(zip(variables, row, strict=True)), times) for row, times in data[name].items() if times]
        joined = [
            (known | new, count * times)
            for known, count in joined
            for new, times in bound
            if all(known.get(v, value) == value for v, value in new.items())
        ]
    out: dict[Key, dict[str, object]] = {}
    for row, times in joined:
        key = tuple(case.value(g, row[g]) for g in case.groups)
        here = out.setdefault(key, {"count": Counter(), "levels": Counter(), "sums": Counter(), "pairs": Counter()})
        here["count"][()] += times  # type: ignore[index]
        levels = {name: case.value(name, row[name]) for name in case.categorical}
        for i, a in enumerate(case.categorical):
            here["levels"][a, levels[a]] += times  # type: ignore[index]
            for f in case.features:
                here["sums"][a, levels[a], f] += times * row[f]  # type: ignore[index]
            for b in case.categorical[i + 1 :]:
                here["pairs"][a, levels[a], b, levels[b]] += times  # type: ignore[index]
    return {key: {what: dict(counter) for what, counter in found.items()} for key, found in out.items()}  # type: ignore


def by_group(memory: InMemory, case: MixedCase) -> dict[Key, MixedMoments]:
    view = memory.view
    run = memory.contents("moments")
    if run is None:
        return {}
    stored = view.algebra.features(view.plan.root)  # type: ignore[attr-defined]
    order = [stored.index(feature) for feature in case.features]
    decoded = view.answer.keys.decode(run.words) if case.groups else []  # type: ignore[attr-defined]
    columns = [run.values[f"k{i}"] if column is None else column for i, column in enumerate(decoded)]
    keys = list(zip(*(column.to_pylist() for column in columns), strict=True)) if columns else [()] * run.rows
    moments = [Moments.of_row(stored, row).select(case.features) for row in run.payload[0]]
    parts = {part: memory.contents(part) for part in view.arrangements}
    names = {name: name for name in case.categorical}
    found = mixed_moments(view.answer, moments, run.words, parts, names, order)  # type: ignore[arg-type]
    return dict(zip(keys, found, strict=True))


def maintained(memory: InMemory, case: MixedCase) -> dict[Key, object]:
    out: dict[Key, object] = {}
    for key, mixed in by_group(memory, case).items():
        values = {name: mixed.levels(name).to_pylist() for name in case.categorical}
        levels, sums, pairs = {}, {}, {}
        for i, a in enumerate(case.categorical):
            assert values[a] == sorted(values[a])
            levels |= {(a, v): int(n) for v, n in zip(values[a], mixed.level_counts(a), strict=True)}
            for v, row in zip(values[a], mixed.level_sums(a), strict=True):
                sums |= {(a, v, f): x for f, x in zip(case.features, row, strict=True)}
            for b in case.categorical[i + 1 :]:
                for x, y, n in zip(*mixed.pair_counts(a, b), strict=True):
                    pairs[a, values[a][x], b, values[b][y]] = int(n)
        out[key] = {"count": {(): mixed.count}, "levels": levels, "sums": sums, "pairs": pairs}
    return out


@pytest.mark.parametrize("seed", range(50))
def test_every_plan_of_a_random_join(seed: int) -> None:
    case = MixedCase.draw(seed)
    for view in case.every_plan():
        memory = InMemory(view)
        for n, step in enumerate(case.steps, start=1):
            apply(memory, step, case)
            expected = recomputed(state(case.steps[:n], case.schemas), case)
            assert maintained(memory, case) == expected, described(view)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("schemas", [EXAMPLE, TRIANGLE, {"R": ("A", "B", "C")}], ids=["example", "triangle", "one"])
def test_every_plan_of_a_known_join(schemas: Schemas, seed: int) -> None:
    case = MixedCase.draw(1000 + seed, schemas)
    expected = recomputed(state(case.steps, schemas), case)
    for view in case.every_plan():
        assert maintained(play(view, case.steps, case), case) == expected, described(view)


@pytest.mark.parametrize("seed", range(20))
def test_one_batch_equals_any_split(seed: int) -> None:
    case = MixedCase.draw(2000 + seed)
    whole = {name: change for name, change in state(case.steps, case.schemas).items() if +change}
    one_by_one = []
    for step in case.steps:  # what a step inserts comes before what it deletes, or the rows would not be there
        rows = [(name, row, n) for name, change in step.items() for row, n in change.items()]
        case.rng.shuffle(rows)
        rows.sort(key=lambda change: change[2] < 0)
        one_by_one += [{name: Counter({row: n})} for name, row, n in rows]
    expected = recomputed(state(case.steps, case.schemas), case)
    for view in case.every_plan():
        for steps in ([whole], one_by_one):
            assert maintained(play(view, steps, case), case) == expected, described(view)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_when_everything_is_deleted(seed: int) -> None:
    case = MixedCase.draw(3000 + seed)
    there = state(case.steps, case.schemas)
    deletions = [{name: Counter({row: -n for row, n in rows.items() if n})} for name, rows in there.items()]
    case.rng.shuffle(deletions)
    for view in case.every_plan():
        memory = play(view, [*case.steps, *deletions], case)
        assert maintained(memory, case) == {}, described(view)
        for part in view.arrangements:
            run = memory.contents(part)
            assert run is None or not alive(run.payload).any(), f"{part} of {described(view)}"
