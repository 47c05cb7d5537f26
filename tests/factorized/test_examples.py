"""The worked examples of F-IVM, with its numbers: what the paper computes by hand, the kernels compute too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from tests.factorized.harness import BIGINT, InMemory, natural_join
from tests.factorized.shapes import EXAMPLE, ORDER

from headrace.factorized.bucket import part_name
from headrace.factorized.delta import delta
from headrace.factorized.join_view import JoinView
from headrace.factorized.mixed_reading import mixed_moments
from headrace.factorized.planner import Options, moments_view, sums_view
from headrace.learn.mixed_moments import MixedMoments
from headrace.learn.moments import Moments
from headrace.operators.kernel import Evaluated
from headrace.operators.layout import ViewLayout
from headrace.plan.expression import Expression, column
from headrace.plan.join import Argument, JoinPlan, Source, Term
from headrace.plan.view import Aggregate, Shape, ViewPlan
from headrace.relation.run import Run, consolidate, merge
from headrace.rings import Compensated, Covariance, Integer, Payload, Ring, take
from headrace.rings.covariance import unpack

Rows = dict[str, tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]]

# Figure 6. Values are numbered as in the paper: a1 is 1, a2 is 2, and so on.
R = [(1, 1), (1, 2), (2, 3), (3, 4)]
S = [(1, 1, 1), (1, 1, 2), (1, 2, 3), (2, 2, 4)]
T = [(1, 1), (2, 2), (2, 3), (3, 4)]


def rows(relation: str, tuples: list[tuple[int, ...]], diff: list[int] | None = None) -> Rows:
    columns = {v: np.array(values) for v, values in zip(EXAMPLE[relation], zip(*tuples, strict=True), strict=True)}
    return {relation: (columns, np.array(diff or [1] * len(tuples)))}


FIGURE_6 = rows("R", R) | rows("S", S) | rows("T", T)


def sql_view(keys: tuple[str, ...], product: tuple[str, ...], static: str = "", buckets: int = 1) -> JoinView:
    """SELECT keys, COUNT(*), SUM(product of columns) of the example's join."""
    columns = {name: column(name, BIGINT, False) for name in "ABCDE"}
    sources, factors = [], []
    for i, (name, variables) in enumerate(EXAMPLE.items()):
        mine = tuple(v for v in variables if v in product)
        factors += [(i, f) for f in range(len(mine))]
        bound = tuple((v, columns[v]) for v in variables if v in ("A", "C"))
        sources.append(Source(name, name, None, bound, tuple(columns[v] for v in mine)))
    arguments = (Argument((Term(1, tuple(factors)),), ()),) if product else ()
    join = JoinPlan(tuple(sources), keys, arguments)
    written = Expression("Multiply", BIGINT, " * ".join(product), tuple(columns[v] for v in product))
    aggregates = [Aggregate("count", None, BIGINT, "count(1)")]
    aggregates += [Aggregate("sum", 0, BIGINT, "sum")] if product else []
    shape = Shape.GROUPS if keys else Shape.TOTAL
    plan = ViewPlan(
        join,
        shape,
        tuple(columns[k] for k in keys),
        (written,) if product else (),
        tuple(aggregates),
        None,
        (),
    )
    options = Options(order=ORDER if product else "A\n  C", static=frozenset(static))
    return sums_view(ViewLayout(plan, 0), options, buckets)[0]


def number(view: JoinView, relations: str) -> int:
    """Which view of the plan is over these relations."""
    return next(i for i, v in enumerate(view.plan.views) if v.relations == frozenset(relations))


def entries(view: JoinView, at: int, run: Run | None) -> dict[tuple[int, ...], NDArray[np.float64]]:
    """The contents of a view: {key: payload}, the payload's numbers side by side."""
    if run is None:
        return {}
    here = view.plan.views[at]
    slices = view.variables.slices(here.orders[0])
    keys = [view.variables.numbers(name, run.words[slices[name]]).astype(int).tolist() for name in here.keys]
    numbers = np.column_stack([np.asarray(part, float).reshape(run.rows, -1) for part in run.payload])
    return dict(zip(zip(*keys, strict=True) if keys else [()] * run.rows, numbers, strict=True))


def counts(view: JoinView, at: int, run: Run | None) -> dict[tuple[int, ...], int]:
    return {key: int(payload[0]) for key, payload in entries(view, at, run).items()}


def stored(memory: InMemory, relations: str) -> dict[tuple[int, ...], NDArray[np.float64]]:
    at = number(memory.view, relations)
    return entries(memory.view, at, memory.contents(part_name(at, 0)))


# -- Example 4 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ring", [Integer(1), Integer(3), Compensated(), Covariance(2)], ids=repr)
def test_example_4_over_any_ring(ring: Ring) -> None:
    """Union, join and marginalisation of relations over a ring: runs of keys with payloads."""
    rng = np.random.default_rng(4)
    # Products of the paper's elements are not zero; modulo 2**64 products of large integers may be.
    drawn = ring.sample(rng, 64) if isinstance(ring, Covariance) else ring.scale(ring.ones(64), rng.integers(1, 9, 64))
    drawn = take(drawn, ~ring.is_zero(drawn))
    r1, r2, s1, s2, t1, t2, g1, g2, g3 = (take(drawn, np.array([i])) for i in range(9))

    def relation(keys: list[tuple[int, ...]], payloads: list[Payload]) -> Run:
        words = np.array(list(zip(*keys, strict=True)), np.uint64)
        return consolidate(ring, words, tuple(np.concatenate(parts) for parts in zip(*payloads, strict=True)), {})

    union = merge(ring, [relation([(1, 1), (2, 1)], [r1, r2]), relation([(2, 1), (3, 2)], [s1, s2])])
    assert union.words.tolist() == [[1, 2, 3], [1, 1, 2]]
    same(ring, union.payload, [r1, ring.add(r2, s1), s2])

    other = relation([(1, 1), (2, 2)], [t1, t2])
    first, last = other.find(np.ascontiguousarray(union.words[1:]))
    assert (last - first).tolist() == [1, 1, 1]
    joined = ring.multiply(union.payload, take(other.payload, first))
    same(ring, joined, [ring.multiply(r1, t1), ring.multiply(ring.add(r2, s1), t1), ring.multiply(s2, t2)])

    lifted = ring.multiply(joined, tuple(np.concatenate(parts) for parts in zip(g1, g2, g3, strict=True)))
    summed = consolidate(ring, np.ascontiguousarray(other.words[:, first]), lifted, {})
    assert summed.words.tolist() == [[1, 2], [1, 2]]
    b1 = ring.add(ring.multiply(ring.multiply(r1, t1), g1), ring.multiply(ring.multiply(ring.add(r2, s1), t1), g2))
    same(ring, summed.payload, [b1, ring.multiply(ring.multiply(s2, t2), g3)])


def same(ring: Ring, payload: Payload, expected: list[Payload]) -> None:
    wanted = tuple(np.concatenate(parts) for parts in zip(*expected, strict=True))
    assert ring.equal(payload, wanted).all()


def test_example_4_as_a_view() -> None:
    """The same through a plan: multiplicities are the payloads r, s, t, and A is lifted where it is summed away."""
    r1, r2, s1, s2, t1, t2 = 2, 3, 5, 7, 11, 13
    a1, a2, a3 = 1, 2, 3
    view, _ = moments_view(natural_join({"R": ("A", "B"), "T": ("B", "C")}), ("B", "C"), ("A",), Options(), 3, 0, {})
    memory = InMemory(view)
    memory.step({"R": ({"A": np.array([a1, a2]), "B": np.array([1, 1])}, np.array([r1, r2]))})
    memory.step({"R": ({"A": np.array([a2, a3]), "B": np.array([1, 2])}, np.array([s1, s2]))})  # the union with S
    memory.step({"T": ({"B": np.array([1, 2]), "C": np.array([1, 2])}, np.array([t1, t2]))})
    run = memory.contents("moments")
    assert run is not None
    got = {tuple(row[:2].tolist()): row for row in run.payload[0]}
    n1, n2 = r1 * t1, (r2 + s1) * t1
    expected = [
        [n1 + n2, n1 * a1 + n2 * a2, n1 * a1**2 + n2 * a2**2],
        [s2 * t2, s2 * t2 * a3, s2 * t2 * a3**2],
    ]
    assert sorted(row.tolist() for row in got.values()) == sorted(expected)


# -- Example 5 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [1, 3])
def test_example_5(buckets: int) -> None:
    """SUM(B * D * E) by A, C over the integers."""
    view = sql_view(("A", "C"), ("B", "D", "E"), buckets=buckets)
    memory = InMemory(view)
    memory.step(FIGURE_6)
    expected: dict[tuple[int, int], list[int]] = {}
    for a, b in R:
        for a_, c, e in S:
            for c_, d in T:
                if (a, c) == (a_, c_):
                    group = expected.setdefault((a, c), [0, 0])
                    group[0] += 1
                    group[1] += b * d * e
    run = memory.contents("groups")
    assert run is not None
    layout = view.answer.layout  # type: ignore[attr-defined]
    keys = list(zip(*(part.to_pylist() for part in layout.keys.decode(run.words)), strict=True))
    count, total = (layout.component(role, at) for role, at in (("rows", None), ("sum", 0)))
    parts = [part.ring.values(own) for part, own in zip(layout.components, layout.ring.split(run.payload), strict=True)]
    assert dict(zip(keys, map(list, zip(parts[count], parts[total], strict=True)), strict=True)) == expected
    assert expected[1, 1] == [4, (1 + 2) * 1 * (1 + 2)]
    # The views below hold what Figure 1 says: S_E by A, C; S_D by C; S_B by A.
    sums = {"R": {(1,): 3, (2,): 3, (3,): 4}, "S": {(1, 1): 3, (1, 2): 3, (2, 2): 4}, "T": {(1,): 1, (2,): 5, (3,): 4}}
    for relation, wanted in sums.items():
        assert {key: int(payload[-2]) for key, payload in stored(memory, relation).items()} == wanted


# -- Examples 8, 9 and 10 ---------------------------------------------------------------------------------------------


def test_example_8() -> None:
    memory = InMemory(sql_view((), ()))
    memory.step(FIGURE_6)
    total = memory.contents("groups")
    assert total is not None
    assert total.payload[0].tolist() == [10]
    view = memory.view
    for relations, wanted in {
        "R": {(1,): 2, (2,): 1, (3,): 1},
        "S": {(1, 1): 2, (1, 2): 1, (2, 2): 1},
        "T": {(1,): 1, (2,): 2, (3,): 1},
        "ST": {(1,): 2 * 1 + 1 * 2, (2,): 1 * 2},
    }.items():
        at = number(view, relations)
        assert counts(view, at, memory.contents(part_name(at, 0))) == wanted


@pytest.mark.parametrize("static", ["", "RS"])
def test_example_9(static: str) -> None:
    """A change of T, view by view on its way to the root; the same whether or not R and S can change too."""
    view = sql_view((), (), static)
    memory = InMemory(view)
    memory.step(FIGURE_6)
    change = rows("T", [(1, 1), (2, 2)], [-1, 3])
    (columns, diff) = change["T"]
    lifted = view.lift("T", Evaluated([pa.array(columns["C"])], [], diff, np.arange(2)), 1)
    trigger = view.plan.by_relation["T"]
    deltas = {trigger.leaf: lifted[0]["T"]}
    for statement in trigger.statements:
        found = delta(
            view.plan,
            view.algebra,
            view.variables,
            statement,
            deltas[statement.source],
            lambda at, order: memory.state[part_name(at, order), 0],
        )
        assert found is not None
        deltas[statement.target] = found
    assert {at: counts(view, at, run) for at, run in deltas.items()} == {
        number(view, "T"): {(1,): -1, (2,): 3},
        number(view, "ST"): {(1,): 1, (2,): 3},
        number(view, "RST"): {(): 5},
    }
    memory.step(change)
    total = memory.contents("groups")
    assert total is not None
    assert total.payload[0].tolist() == [15]


@pytest.mark.parametrize(
    ("static", "kept"),
    [("RS", ["R", "S"]), ("", ["R", "S", "ST", "T"]), ("ST", ["ST"]), ("RT", ["R", "T"]), ("RST", [])],
    ids=["updates of T", "of all", "of R", "of S", "of none"],
)
def test_example_10(static: str, kept: list[str]) -> None:
    view = sql_view((), (), static)
    assert sorted("".join(sorted(v.relations)) for i, v in enumerate(view.plan.views) if v.kept and i) == kept
    memory = InMemory(view)
    memory.step(FIGURE_6)
    # Nothing else is stored, though filling needed all of it.
    assert {part for (part, _), runs in memory.state.items() if runs} == {"groups"} | {
        part_name(number(view, relations), 0) for relations in kept
    }
    total = memory.contents("groups")
    assert total is not None
    assert total.payload[0].tolist() == [10]


# -- Example 35 -------------------------------------------------------------------------------------------------------


def test_example_35() -> None:
    a, b, c = [None, 2, 3, 5], [None, 7, 11, 13, 17], [None, 19, 23, 29]
    d, e = [None, 31, 37, 41, 43], [None, 47, 53, 59, 61]
    data = (
        rows("R", [(a[i], b[j]) for i, j in R])
        | rows("S", [(a[i], c[j], e[k]) for i, j, k in S])
        | rows("T", [(c[i], d[j]) for i, j in T])
    )
    view, _ = moments_view(natural_join(EXAMPLE), (), tuple("ABCDE"), Options(order=ORDER), 1, 0, {})
    memory = InMemory(view)
    memory.step(data)

    def triple(relations: str, key: tuple[int, ...]) -> tuple[float, dict[str, float], dict[str, float]]:
        """Count, sums by variable and products by pair of variables; those that a view does not have are zero."""
        names = view.algebra.features(number(view, relations))  # type: ignore[attr-defined]
        count, sums, products = unpack(stored(memory, relations)[key], len(names))
        pairs = {x + y: products[i, j] for i, x in enumerate(names) for j, y in enumerate(names) if x <= y}
        return count, dict(zip(names, sums, strict=True)), pairs

    assert triple("T", (c[1],)) == (1, {"D": d[1]}, {"DD": d[1] ** 2})
    assert triple("T", (c[2],)) == (2, {"D": d[2] + d[3]}, {"DD": d[2] ** 2 + d[3] ** 2})
    assert triple("T", (c[3],)) == (1, {"D": d[4]}, {"DD": d[4] ** 2})
    assert triple("R", (a[1],)) == (2, {"B": b[1] + b[2]}, {"BB": b[1] ** 2 + b[2] ** 2})
    assert triple("S", (a[2], c[2])) == (1, {"E": e[4]}, {"EE": e[4] ** 2})
    both = d[2] + d[3]
    assert triple("ST", (a[2],)) == (
        2,
        {"C": 2 * c[2], "D": both, "E": 2 * e[4]},
        {
            "CC": 2 * c[2] ** 2,
            "CD": c[2] * both,
            "CE": 2 * c[2] * e[4],
            "DD": d[2] ** 2 + d[3] ** 2,
            "DE": both * e[4],
            "EE": 2 * e[4] ** 2,
        },
    )
    joined = [(a[i], b[j], c[k], d[n], e[m]) for i, j in R for i_, k, m in S if i == i_ for k_, n in T if k == k_]
    design = np.array(joined, float)
    run = memory.contents("moments")
    assert run is not None
    names = view.algebra.features(view.plan.root)  # type: ignore[attr-defined]
    count, sums, products = unpack(run.payload[0][0], 5)
    at = [names.index(name) for name in "ABCDE"]
    assert count == len(joined) == 10
    assert sums[at].tolist() == design.sum(axis=0).tolist()
    assert products[np.ix_(at, at)].tolist() == (design.T @ design).tolist()


# -- Examples 38 and 40 -----------------------------------------------------------------------------------------------


def mixed_over_figure_6(features: str, categorical: str) -> MixedMoments:
    """The view tree of Figure 3 over the database of Figure 6, where value i of variable X is 100 * number of X + i."""
    value = {name: 100 * (1 + i) for i, name in enumerate("ABCDE")}
    data = (
        rows("R", [(value["A"] + i, value["B"] + j) for i, j in R])
        | rows("S", [(value["A"] + i, value["C"] + j, value["E"] + k) for i, j, k in S])
        | rows("T", [(value["C"] + i, value["D"] + j) for i, j in T])
    )
    order_text = ORDER if "E" in features else ORDER.replace("\n    E", "")  # a plan has no variable that nobody wants
    options = Options(order=order_text)
    view, _ = moments_view(natural_join(EXAMPLE), (), tuple(features), options, 2, 0, {}, tuple(categorical))
    memory = InMemory(view)
    memory.step(data)
    run = memory.contents("moments")
    assert run is not None
    stored = view.algebra.features(view.plan.root)  # type: ignore[attr-defined]
    moments = [Moments.of_row(stored, run.payload[0][0]).select(tuple(features))]
    parts = {part: memory.contents(part) for part in view.arrangements}
    order = [stored.index(name) for name in features]
    names = {name: name for name in categorical}
    return mixed_moments(view.answer, moments, run.words, parts, names, order)[0]  # type: ignore[arg-type]


def test_example_38_at_the_root() -> None:
    """SUM(1), SUM(D) and SUM(E) GROUP BY C over the join."""
    mixed = mixed_over_figure_6("ABDE", "C")
    joined = [(j, k, n, m) for i, j in R for i_, k, m in S if i == i_ for k_, n in T if k == k_]
    assert mixed.count == len(joined) == 10
    for code, level in enumerate(mixed.levels("C").to_pylist()):
        mine = [row for row in joined if 300 + row[1] == level]
        assert mixed.level_counts("C")[code] == len(mine)
        sums = dict(zip("ABDE", mixed.level_sums("C")[code], strict=True))
        assert sums["D"] == sum(400 + d for _, _, d, _ in mine)
        assert sums["E"] == sum(500 + e for _, _, _, e in mine)
    assert dict(zip(mixed.levels("C").to_pylist(), mixed.level_counts("C").tolist(), strict=True)) == {301: 4, 302: 6}


def test_example_40_two_variables_at_a_time() -> None:
    """Each pair of variables of Q(A, B, C, D), with the multiplicities that Figure 18 lists."""
    listed = {"1111": 2, "1122": 1, "1123": 1, "1211": 2, "1222": 1, "1223": 1, "2322": 1, "2323": 1}
    mixed = mixed_over_figure_6("", "ABCD")
    assert mixed.count == sum(listed.values())
    for i, a in enumerate("ABCD"):
        for j, b in enumerate("ABCD"):
            expected: dict[tuple[int, int], int] = {}
            for row, times in listed.items():
                key = 100 * (i + 1) + int(row[i]), 100 * (j + 1) + int(row[j])
                expected[key] = expected.get(key, 0) + times
            left, right, counts = mixed.pair_counts(a, b)
            values = mixed.levels(a).to_pylist(), mixed.levels(b).to_pylist()
            found = zip(left, right, counts, strict=True)
            assert {(values[0][x], values[1][y]): int(n) for x, y, n in found} == expected
