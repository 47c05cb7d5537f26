"""Changes that are products: what they give is what their rows give, and what they cost is what their parts cost.

No Spark is needed. Values are small integers, which doubles add and multiply exactly, so comparisons are for equality.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import product as combinations
from math import prod

import numpy as np
import pytest
from tests.factorized.harness import BIGINT, InMemory, Rows, natural_join
from tests.factorized.shapes import CHORD, EXAMPLE, ORDER, PROJECTED, TRIANGLE, Schemas
from tests.factorized.test_maintenance_plans import Case, apply, described, maintained, recomputed, state
from tests.seeds import drawn

from headrace.errors import BadRowsError
from headrace.factorized.counts import CountAlgebra
from headrace.factorized.planner import Options, moments_view
from headrace.factorized.products import MOST_ENTRIES, Part, multiplied_out
from headrace.relation.variables import Variable, Variables
from headrace.rings.covariance import unpack

Row = tuple[int, ...]
Side = tuple[tuple[str, ...], Counter[Row]]
"""A part of a product: its columns, and its rows with their multiplicities."""
Term = list[Side]


def multiplied(term: Term, columns: tuple[str, ...]) -> Counter[Row]:
    """The rows that a product stands for."""
    out: Counter[Row] = Counter()
    for chosen in combinations(*(rows.items() for _, rows in term)):
        values = {
            name: v
            for (names, _), (row, _) in zip(term, chosen, strict=True)
            for name, v in zip(names, row, strict=True)
        }
        out[tuple(values[name] for name in columns)] += prod(times for _, times in chosen)
    return out


def as_part(side: Side) -> Rows:
    names, rows = side
    columns = {name: np.array([row[i] for row in rows], np.int64) for i, name in enumerate(names)}
    return columns, np.array(list(rows.values()), np.int64)


def random_term(rng: random.Random, columns: tuple[str, ...], values: int) -> Term:
    """Random parts over a random partition of the columns."""
    names = list(columns)
    rng.shuffle(names)
    term: Term = []
    while names:
        own = tuple(names.pop() for _ in range(rng.randint(1, min(2, len(names)))))
        rows: Counter[Row] = Counter()
        for _ in range(rng.randint(1, 4)):
            rows[tuple(rng.randrange(values) for _ in own)] += rng.choice([1, 1, 2])
        term.append((own, rows))
    return term


def smaller(rng: random.Random, term: Term) -> Term:
    """What takes part of a product away: some rows of each part, once; the first part has the sign."""
    out: Term = []
    for i, (names, rows) in enumerate(term):
        kept = rng.sample(sorted(rows), rng.randint(1, len(rows)))
        out.append((names, Counter(dict.fromkeys(kept, -1 if i == 0 else 1))))
    return out


class Played:
    """A stream of steps, each of ordinary rows of some relations and of products of others."""

    def __init__(self, case: Case) -> None:
        self.rows: list[dict[str, Counter[Row]]] = []
        self.terms: list[dict[str, list[Term]]] = []
        self.whole: list[dict[str, Counter[Row]]] = []
        # The rows of products by themselves: no term takes away what only ordinary rows have, which go on their own.
        rng, now = case.rng, {name: Counter[Row]() for name in case.schemas}
        had: dict[str, list[Term]] = {name: [] for name in case.schemas}
        for step in case.steps:
            terms: dict[str, list[Term]] = {}
            for name, columns in case.schemas.items():
                if name in case.static or rng.random() < 0.4:
                    continue
                chosen = [random_term(rng, columns, case.values) for _ in range(rng.randint(1, 2))]
                if rng.random() < 0.6:  # an over-approximation, less what it has too much
                    chosen.append(smaller(rng, rng.choice([*chosen, *had[name]])))
                if rng.random() < 0.3 and had[name]:
                    names, first = (gone := had[name].pop(rng.randrange(len(had[name]))))[0]
                    chosen.append([(names, Counter({row: -n for row, n in first.items()})), *gone[1:]])
                change = sum_of([multiplied(term, columns) for term in chosen])
                after = sum_of([now[name], change])
                if min(after.values(), default=0) >= 0:  # counts of a bag are never negative
                    terms[name], now[name] = chosen, after
                    had[name] += [term for term in chosen if all(n > 0 for _, rows in term for n in rows.values())]
            whole = {
                name: sum_of(
                    [step.get(name, Counter()), *(multiplied(t, case.schemas[name]) for t in terms.get(name, []))]
                )
                for name in {**step, **terms}
            }
            self.rows.append(step)
            self.terms.append(terms)
            self.whole.append(whole)


def sum_of(bags: list[Counter[Row]]) -> Counter[Row]:
    out: Counter[Row] = Counter()
    for bag in bags:
        out.update(bag)
    return out


def apply_products(
    memory: InMemory, rows: dict[str, Counter[Row]], terms: dict[str, list[Term]], schemas: Schemas
) -> None:
    changes = {}
    for name, change in rows.items():
        columns = {v: np.array([row[i] for row in change], np.int64) for i, v in enumerate(schemas[name])}
        changes[name] = columns, np.array(list(change.values()), np.int64)
    memory.step(changes, {name: [[as_part(side) for side in term] for term in own] for name, own in terms.items()})


def check(case: Case) -> None:
    played = Played(case)
    loaded = {name: Counter(step) for name, step in state(case.steps, case.schemas).items() if name in case.static}
    moving = [{n: c for n, c in step.items() if n not in case.static} for step in played.rows]
    for view in case.every_plan():
        memory, ordinary = InMemory(view), InMemory(view)
        for one in (memory, ordinary):
            if loaded:
                apply(one, loaded, case.schemas)
        for n, (rows, terms) in enumerate(zip(moving, played.terms, strict=True), start=1):
            apply_products(memory, rows, terms, case.schemas)
            whole = {name: change for name, change in played.whole[n - 1].items() if name not in case.static}
            apply(ordinary, whole, case.schemas)
            now = state(
                [loaded, *({k: c for k, c in w.items() if k not in case.static} for w in played.whole[:n])],
                case.schemas,
            )
            assert maintained(memory, case) == recomputed(now, case), described(view)
        for part in view.arrangements:  # not the answer alone: every view that is kept has the same entries
            assert contents(memory, part) == contents(ordinary, part), f"{part} of {described(view)}"


def contents(memory: InMemory, part: str) -> dict[tuple[int, ...], object]:
    run = memory.contents(part)
    if run is None:
        return {}
    payload = [np.asarray(column).tolist() for column in run.payload]
    return {tuple(key): tuple(values) for key, *values in zip(run.words.T.tolist(), *payload, strict=True)}


@pytest.mark.parametrize("seed", drawn("products over random joins", 60))
def test_products_over_every_plan_of_a_random_join(seed: int) -> None:
    check(Case.draw(seed))


@pytest.mark.parametrize("seed", drawn("products over known joins", 8))
@pytest.mark.parametrize(
    "schemas", [EXAMPLE, TRIANGLE, CHORD, PROJECTED], ids=["example", "triangle", "chord", "projected"]
)
def test_products_over_every_plan_of_a_known_join(schemas: Schemas, seed: int) -> None:
    check(Case.draw(seed, schemas))


@pytest.mark.parametrize("seed", drawn("products beside static relations", 20))
def test_products_beside_static_relations(seed: int) -> None:
    case = Case.draw(seed)
    names = list(case.schemas)
    case.static = frozenset(case.rng.sample(names, case.rng.randint(1, len(names))))
    check(case)


# -- cost: Example 12 -------------------------------------------------------------------------------------------------


class Counting:
    """Counts how many products of payloads an algebra makes, and how many rows it lifts."""

    def __init__(self, algebra: object) -> None:
        self.algebra = algebra
        self.products = 0
        self.lifted = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.algebra, name)

    def multiply(self, statement, payloads, index, *rest):  # type: ignore[no-untyped-def]
        self.products += index.shape[1]
        return self.algebra.multiply(statement, payloads, index, *rest)  # type: ignore[attr-defined]

    def product_sum(self, scopes, target, payloads, index, *rest):  # type: ignore[no-untyped-def]
        self.products += index.shape[1]
        return self.algebra.product_sum(scopes, target, payloads, index, *rest)  # type: ignore[attr-defined]

    def lifting_part(self, leaf, scope, rows):  # type: ignore[no-untyped-def]
        self.lifted += len(rows.diff)
        return self.algebra.lifting_part(leaf, scope, rows)  # type: ignore[attr-defined]


def example_12(n: int, static: frozenset[str], groups: tuple[str, ...] = ()) -> tuple[Counting, InMemory]:
    """R and T of n rows, then a product of n values of A, of C and of E for S; the answer is checked by NumPy."""
    features = tuple(name for name in ("B", "D", "E") if name not in groups)
    options = Options(order=ORDER, static=static)
    view, _ = moments_view(natural_join(EXAMPLE), groups, features, options, 1, 7, {})
    counting = Counting(view.algebra)
    object.__setattr__(view, "algebra", counting)
    memory = InMemory(view)
    rng, ones, all_ = np.random.default_rng(n), np.ones(n, np.int64), np.arange(n)
    b, d, e = (rng.integers(0, 4, n) for _ in range(3))
    memory.step({"R": ({"A": all_, "B": b}, ones), "T": ({"C": all_, "D": d}, ones)})
    counting.products = counting.lifted = 0
    memory.multiplied.clear()
    memory.step({}, {"S": [[({"A": all_}, ones), ({"C": all_}, ones), ({"E": e}, ones)]]})
    if not groups:
        run = memory.contents("moments")
        assert run is not None
        count, sums, _ = unpack(run.payload[0][0], 3)
        names = view.algebra.features(view.plan.root)
        totals = {"B": b.sum(), "D": d.sum(), "E": e.sum()}
        assert count == float(n) ** 3
        assert sums.tolist() == [totals[name] * float(n) ** 2 for name in names]
    return counting, memory


def test_a_product_costs_the_size_of_its_parts_when_the_other_tables_are_static() -> None:
    static = frozenset("RT")
    small, _ = example_12(50, static)
    large, memory = example_12(100, static)
    assert small.lifted == 3 * 50
    assert large.lifted == 3 * 100
    # One product of payloads per value of A and of C, and one to sum each: the terms of Example 12's formula.
    assert small.products <= 4 * 50
    assert large.products <= 4 * 100
    assert sum(memory.multiplied.values()) <= 1  # the answer, which is one entry


def test_a_view_that_is_kept_gets_its_entries_and_no_more() -> None:
    """T changes too, so V_S[A, C] is kept: n * n entries, in which E is summed away; n ** 3 rows are never made."""
    counting, memory = example_12(40, frozenset("R"))
    assert memory.multiplied["V_S[A, C]"] == 40**2
    assert counting.lifted == 3 * 40
    assert counting.products <= 40**2 + 8 * 40
    run = memory.contents("v" + str(next(i for i, v in enumerate(memory.view.plan.views) if v.name == "V_S[A, C]")))
    assert run is not None
    assert run.rows == 40**2


def test_groups_of_one_part_are_not_crossed_with_another_part() -> None:
    counting, memory = example_12(60, frozenset("RT"), ("A",))
    assert counting.products <= 6 * 60
    run = memory.contents("moments")
    assert run is not None
    assert run.rows == 60


def test_parts_that_a_sibling_joins_are_looked_up_and_not_paired() -> None:
    """W[A, C] has n entries: they are looked up in both parts, where pairs of the parts would be n ** 2."""
    for n in (50, 100):
        schemas: Schemas = {"S": ("A", "C", "E"), "W": ("A", "C")}
        view, _ = moments_view(natural_join(schemas), (), ("E",), Options(static=frozenset("W")), 1, 7, {})
        counting = Counting(view.algebra)
        object.__setattr__(view, "algebra", counting)
        memory = InMemory(view)
        ones, all_ = np.ones(n, np.int64), np.arange(n)
        memory.step({"W": ({"A": all_, "C": (all_ + 1) % n}, ones)})
        counting.products = 0
        memory.step({}, {"S": [[({"A": all_}, ones), ({"C": all_}, ones), ({"E": all_}, ones)]]})
        assert counting.products <= 4 * n
        run = memory.contents("moments")
        assert run is not None
        assert run.payload[0][0].tolist()[:2] == [n * n, n * n * (n - 1) / 2]


def test_what_nobody_could_store_is_refused() -> None:
    variables = Variables({name: Variable(BIGINT) for name in "AC"}, 7)
    n = 1 << 14
    assert n * n > MOST_ENTRIES
    words, ones = np.arange(n, dtype=np.uint64)[None, :], (np.ones(n, np.int64),)
    parts = (Part(words, ones, {}, ("A",)), Part(words, ones, {}, ("C",)))
    with pytest.raises(BadRowsError, match=r"multiplied out in V_S\[A, C\]"):
        multiplied_out(CountAlgebra(), variables, parts, ("A", "C"), (), "V_S[A, C]")
