"""Factorized results over random joins: what is listed = what a recomputation gives, after any stream of changes.

No Spark is needed, so hundreds of joins are tried. The recomputation joins rows as dictionaries and shares no code with
what is tested.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from tests.factorized.harness import InMemory, natural_join
from tests.factorized.shapes import Schemas, hypergraph, random_schemas
from tests.factorized.test_maintenance_plans import Bag, Case, Row, apply, state

from headrace.errors import ArithmeticOverflowError, SchemaError, VariableOrderError
from headrace.factorized.bucket import part_name
from headrace.factorized.counts import check_product
from headrace.factorized.enumeration import Enumeration
from headrace.factorized.join_view import JoinView
from headrace.factorized.planner import Options
from headrace.factorized.results import result_view
from headrace.operators.layout import ViewLayout
from headrace.plan.classes import is_free_connex
from headrace.plan.dependencies import Dependency, reduct
from headrace.plan.expression import column
from headrace.plan.promise import changing, promise
from headrace.plan.view import Output, Shape, ViewPlan
from headrace.relation.runset import RunSet
from headrace.relation.types import SqlType

BIGINT = SqlType("bigint")


def planned(schemas: Schemas, free: tuple[str, ...], buckets: int = 1, **options: object) -> JoinView:
    keys = tuple(column(v, BIGINT, False) for v in free)
    outputs = tuple(Output(v, column(f"k{i}", BIGINT, False)) for i, v in enumerate(free))
    plan = ViewPlan(natural_join(schemas, free), Shape.ROWS, keys, (), (), None, outputs)
    return result_view(ViewLayout(plan, 7), Options(**options), buckets)[0]  # type: ignore[arg-type]


def enumerations(memory: InMemory, most: int = 8_192) -> list[Enumeration]:
    view = memory.view
    parts = [part for stage in view.stages for part in stage]
    return [
        Enumeration(
            view.plan,
            view.variables,
            {part: list(memory.state[part, view.home(part, bucket)]) for part in parts},
            most,
        )
        for bucket in range(view.buckets)
    ]


def listed(memory: InMemory, free: tuple[str, ...], most: int = 8_192) -> Counter[Row]:
    out: Counter[Row] = Counter()
    for one in enumerations(memory, most):
        for block in one.blocks():
            assert 0 < len(block.times) <= most
            columns = [memory.view.variables.numbers(v, block.words(v)).astype(int).tolist() for v in free]
            for *row, times in zip(*columns, block.times.tolist(), strict=True):
                assert times > 0
                assert tuple(row) not in out, "a row is listed twice"
                out[tuple(row)] = times
    return out


def joined(data: Bag, schemas: Schemas, free: tuple[str, ...]) -> Counter[Row]:
    rows: list[tuple[dict[str, int], int]] = [({}, 1)]
    for name, variables in schemas.items():
        bound = [(dict(zip(variables, row, strict=True)), times) for row, times in data[name].items() if times]
        rows = [
            (known | new, count * times)
            for known, count in rows
            for new, times in bound
            if all(known.get(v, value) == value for v, value in new.items())
        ]
    out: Counter[Row] = Counter()
    for row, times in rows:
        out[tuple(row[v] for v in free)] += times
    return out


@dataclass
class Drawn:
    """A random join, the columns that it shows, and a stream of changes."""

    case: Case
    free: tuple[str, ...]

    @classmethod
    def of(cls, seed: int) -> Drawn:
        rng = random.Random(seed)
        schemas = random_schemas(rng)
        variables = list(hypergraph(schemas).variables)
        rng.shuffle(variables)
        everything = rng.random() < 0.5
        free = tuple(variables if everything else variables[: rng.randint(1, len(variables))])
        return cls(Case.draw(seed, schemas), free)

    def view(self) -> JoinView:
        rng = self.case.rng
        partition = rng.choice([None, *self.free])
        return planned(self.case.schemas, self.free, rng.choice([1, 3, 4]), partition=partition)

    def expected(self, steps: int | None = None) -> Counter[Row]:
        return joined(state(self.case.steps[:steps], self.case.schemas), self.case.schemas, self.free)

    def check(self, memory: InMemory, expected: Counter[Row]) -> None:
        for most in (1, 3, 8_192):
            assert listed(memory, self.free, most) == expected
        assert total(memory) == expected.total()
        assert sum(one.distinct() for one in enumerations(memory)) == len(expected)


def total(memory: InMemory) -> int:
    run = memory.contents("count")
    return 0 if run is None else int(run.payload[0].sum())


@pytest.mark.parametrize("seed", range(120))
def test_what_is_listed_is_the_join(seed: int) -> None:
    drawn = Drawn.of(seed)
    memory = InMemory(drawn.view())
    for n, step in enumerate(drawn.case.steps, start=1):
        apply(memory, step, drawn.case.schemas)
        drawn.check(memory, drawn.expected(n))


@pytest.mark.parametrize("seed", range(200, 230))
def test_one_batch_equals_any_split(seed: int) -> None:
    drawn = Drawn.of(seed)
    whole, each = InMemory(drawn.view()), InMemory(drawn.view())
    apply(whole, {n: c for n, c in state(drawn.case.steps, drawn.case.schemas).items() if +c}, drawn.case.schemas)
    for step in drawn.case.steps:
        rows = [(name, row, times) for name, change in step.items() for row, times in change.items()]
        for name, row, times in sorted(rows, key=lambda change: change[2] < 0):  # inserted before it is deleted
            apply(each, {name: Counter({row: times})}, drawn.case.schemas)
    for memory in (whole, each):
        drawn.check(memory, drawn.expected())


@pytest.mark.parametrize("seed", range(300, 320))
def test_nothing_is_left_when_everything_is_deleted(seed: int) -> None:
    drawn = Drawn.of(seed)
    memory = InMemory(drawn.view())
    for step in drawn.case.steps:
        apply(memory, step, drawn.case.schemas)
    for name, rows in state(drawn.case.steps, drawn.case.schemas).items():
        apply(memory, {name: Counter({row: -times for row, times in rows.items()})}, drawn.case.schemas)
    drawn.check(memory, Counter())
    for part in memory.view.arrangements:
        left = memory.contents(part)
        assert left is None or not left.rows


@pytest.mark.parametrize("seed", range(400, 420))
def test_a_relation_that_never_changes_is_filled_first(seed: int) -> None:
    drawn = Drawn.of(seed)
    static = frozenset(drawn.case.rng.sample(sorted(drawn.case.schemas), 1))
    memory = InMemory(planned(drawn.case.schemas, drawn.free, 3, static=static))
    now = state(drawn.case.steps, drawn.case.schemas)
    if first := {name: rows for name, rows in now.items() if name in static and rows}:
        apply(memory, first, drawn.case.schemas)
    for step in drawn.case.steps:
        apply(memory, {name: rows for name, rows in step.items() if name not in static}, drawn.case.schemas)
    drawn.check(memory, drawn.expected())


# -- guarantees ---------------------------------------------------------------------------------------------------


def test_views_of_free_connex_queries_are_no_larger_than_relations() -> None:
    """The keys of every view are columns of one relation: linear space and preprocessing (Section 7.1)."""
    checked = 0
    for seed in range(300):
        drawn = Drawn.of(seed)
        if is_free_connex(hypergraph(drawn.case.schemas, drawn.free)):
            checked += 1
            for view in planned(drawn.case.schemas, drawn.free).plan.views:
                assert any(set(view.keys) <= set(schema) for schema in drawn.case.schemas.values())
    assert checked > 100


Q_HIERARCHICAL: Schemas = {"R": ("A", "B"), "S": ("A", "C", "E"), "T": ("A", "C", "D")}
FREE_CONNEX: Schemas = {"R": ("A", "B"), "S": ("A", "C", "E"), "T": ("C", "D")}


def grown(schemas: Schemas, free: tuple[str, ...], size: int) -> InMemory:
    """A result over relations of `size` rows, in which every key has many matches."""
    memory = InMemory(planned(schemas, free))
    columns = drawn_columns(size)
    ones = np.ones(size, np.int64)
    memory.step({name: ({v: columns[v] for v in schema}, ones) for name, schema in schemas.items()})
    return memory


def drawn_columns(size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    columns = {v: rng.integers(0, max(10, size // 25) if v == "A" else size, size) for v in "ABDE"}
    columns["C"] = columns["A"] % 5
    return columns


@pytest.mark.parametrize("schemas", [Q_HIERARCHICAL, FREE_CONNEX], ids=["q-hierarchical", "free-connex"])
def test_the_delay_between_rows_is_constant(schemas: Schemas) -> None:
    """Between two rows, the entries that are looked up or read are as many over 16 times the data."""
    worst = []
    for size in (250, 1_000, 4_000):
        (one,) = enumerations(grown(schemas, ("A", "B", "C"), size), most=1)
        delays, before = [], 0
        for number, block in enumerate(one.blocks()):
            assert len(block.times) == 1
            delays.append(one.touched - before)
            before = one.touched
            if number == 3_000:
                break
        assert len(delays) > 100
        worst.append(max(delays))
    assert worst[0] == worst[1] == worst[2] <= 8


def test_rows_that_were_deleted_delay_the_others_by_a_share_of_them() -> None:
    """With nine rows in ten deleted and nothing merged yet, entries read per row are as many over 16 times the data.

    An entry and its deletion are both read until a merge takes them away, so the delay is amortized: a stretch of
    deleted keys is paid for by what it stands between.
    """
    shares = []
    for size in (250, 1_000, 4_000):
        memory = grown(Q_HIERARCHICAL, ("A", "B", "C"), size)
        before = memory.entries()
        columns = drawn_columns(size)
        gone = np.flatnonzero(np.arange(size) % 10)
        ones = np.full(len(gone), -1, np.int64)
        memory.step({n: ({v: columns[v][gone] for v in s}, ones) for n, s in Q_HIERARCHICAL.items()})
        assert memory.entries() > before, "something has been merged"
        (one,) = enumerations(memory, most=64)
        rows = sum(len(block.times) for block in one.blocks())
        assert rows > size // 50
        shares.append(one.touched / rows)
    assert max(shares) <= 2.5 * min(shares), shares
    assert max(shares) <= 60, shares


def test_a_block_costs_in_proportion_to_its_rows() -> None:
    (one,) = enumerations(grown(FREE_CONNEX, ("A", "B", "C"), 20_000), most=512)
    for number, block in enumerate(one.blocks(), start=1):
        assert 0 < len(block.times) <= 512
        if number == 50:
            break
    assert one.touched <= 50 * 4 * 512


def updates(schemas: Schemas, relation: str, size: int) -> list[int]:
    """The entries that single-row inserts and deletes write, over relations of `size` rows."""
    memory = grown(schemas, ("A", "B", "C"), size)
    out = []
    for value in (0, 1):
        for diff in (1, -1):
            before = memory.entries()
            row = {v: np.array([value if v in "AC" else 10 * size]) for v in schemas[relation]}  # C is A % 5
            memory.step({relation: (row, np.array([diff]))})
            out.append(memory.entries() - before)
    return out


@pytest.mark.parametrize("relation", sorted(Q_HIERARCHICAL))
def test_updates_of_q_hierarchical_queries_touch_a_constant_number_of_entries(relation: str) -> None:
    written = [max(updates(Q_HIERARCHICAL, relation, size)) for size in (250, 1_000, 4_000)]
    assert written[0] == written[1] == written[2] <= 6  # at most one per view on the path to the root
    view = planned(Q_HIERARCHICAL, ("A", "B", "C"))
    for trigger in view.plan.triggers:
        for statement in trigger.statements:
            for probe in statement.probes:
                found = view.plan.views[statement.factors[probe.slot]]
                assert probe.bound == len(found.keys), "every lookup is by a whole key"


@pytest.mark.parametrize("relation", sorted(Q_HIERARCHICAL))
def test_updates_of_q_hierarchical_queries_read_a_constant_number_of_entries(
    relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that lookups and listings find, on top of those that are written."""
    read: list[int] = []
    count_reads(read, monkeypatch)
    found = []
    for size in (250, 1_000, 4_000):
        memory = grown(Q_HIERARCHICAL, ("A", "B", "C"), size)
        read.clear()
        for value in (0, 1):
            for diff in (1, -1):
                row = {v: np.array([value if v in "AC" else 10 * size]) for v in Q_HIERARCHICAL[relation]}
                memory.step({relation: (row, np.array([diff]))})
        found.append(sum(read))
    assert 0 < found[0] == found[1] == found[2] <= 100


def test_what_is_read_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a query that is not q-hierarchical reads all that matches, and the counter says so."""
    read: list[int] = []
    count_reads(read, monkeypatch)
    found = []
    for size in (250, 4_000):
        memory = grown(FREE_CONNEX, ("A", "B", "C"), size)
        read.clear()
        memory.step({"T": ({"C": np.array([1]), "D": np.array([10 * size])}, np.array([1]))})
        found.append(sum(read))
    assert found[1] > 4 * found[0]


def count_reads(read: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note how many entries of runs each search finds."""
    find = RunSet.find  # which lookups and listings stand on

    def counted(self: RunSet, probes: np.ndarray) -> np.ndarray:
        found = find(self, probes)
        read.append(int((found[2] - found[1]).sum()))
        return found

    monkeypatch.setattr(RunSet, "find", counted)


def test_updates_of_free_connex_queries_touch_what_matches() -> None:
    assert max(updates(FREE_CONNEX, "T", 4_000)) > 20


def test_example_41() -> None:
    """The kept views over the database of Figure 6 hold the factorization of Figure 18."""
    schemas: Schemas = {"R": ("A", "B"), "S": ("A", "C", "E"), "T": ("C", "D")}
    view = planned(schemas, ("A", "B", "C", "D"), order="A\n  B\n  C\n    D\n    E")
    memory = InMemory(view)
    tables: Bag = {
        "R": Counter([(1, 1), (1, 2), (2, 3), (3, 4)]),
        "S": Counter([(1, 1, 1), (1, 1, 2), (1, 2, 3), (2, 2, 4)]),
        "T": Counter([(1, 1), (2, 2), (2, 3), (3, 4)]),
    }
    apply(memory, tables, schemas)
    found = {}
    for level in view.plan.listing:
        run = memory.contents(part_name(level.view, level.order))
        assert run is not None
        keys = view.plan.views[level.view].orders[level.order]
        at = view.variables.slices(keys)
        columns = [view.variables.numbers(v, run.words[at[v]]).astype(int).tolist() for v in keys]
        found[level.variables] = dict(zip(zip(*columns, strict=True), run.payload[0].tolist(), strict=True))
    assert found == {
        ("A",): {(1,): 8, (2,): 2},
        ("B",): {(1, 1): 1, (1, 2): 1, (2, 3): 1, (3, 4): 1},
        ("C",): {(1, 1): 2, (1, 2): 2, (2, 2): 2},
        ("D",): {(1, 1): 1, (2, 2): 1, (2, 3): 1, (3, 4): 1},
    }


# -- refusals -----------------------------------------------------------------------------------------------------


def test_a_bound_variable_above_a_free_one_is_refused() -> None:
    with pytest.raises(VariableOrderError, match="Variable C, which the query does not show, is above A"):
        planned(FREE_CONNEX, ("A", "B"), order="C\n  A\n    B")


def test_columns_of_one_relation_may_be_left_out_of_an_order() -> None:
    view = planned(FREE_CONNEX, ("A", "B", "C", "D", "E"), order="A\n  C")
    assert [(level.bound, level.variables) for level in view.plan.listing] == [
        ((), ("A",)),
        (("A",), ("C",)),
        (("A", "C"), ("E",)),
        (("C",), ("D",)),
        (("A",), ("B",)),
    ]


def test_only_columns_that_are_shown_partition_a_result() -> None:
    with pytest.raises(SchemaError, match="a row could be in two buckets"):
        planned(FREE_CONNEX, ("A", "B"), partition="C")


def test_multiplicities_beyond_64_bits_are_an_error() -> None:
    large = np.array([1 << 31, 3], np.int64)
    check_product([large, np.array([1 << 30, 5], np.int64)], 2)
    with pytest.raises(ArithmeticOverflowError, match="64-bit"):
        check_product([large, large], 2)


# -- functional dependencies --------------------------------------------------------------------------------------

EXAMPLE_27: Schemas = {"R": ("A", "B"), "S": ("B", "C"), "T": ("C", "D")}
SIGMA = (Dependency(("B",), ("C",)), Dependency(("C",), ("D",)))


def test_example_27_has_constant_updates_under_its_dependencies() -> None:
    """A change of S or T matches one value of C or D, as these are determined (Figure 15)."""
    for dependencies, is_constant in ((SIGMA, True), ((), False)):
        written = []
        for size in (200, 800, 3_200):
            memory = InMemory(planned(EXAMPLE_27, ("A", "B", "C", "D"), dependencies=dependencies))
            b, c = np.arange(size), np.arange(size // 4)
            rows = {"R": {"A": np.arange(10 * size), "B": np.arange(10 * size) % size}}
            rows |= {"S": {"B": b, "C": b // 4}, "T": {"C": c, "D": c // 25}}
            memory.step({name: (columns, np.ones(len(next(iter(columns.values()))))) for name, columns in rows.items()})
            most = 0
            for name, columns in rows.items():
                for diff in (-1, 1):
                    before = memory.entries()
                    memory.step({name: ({v: values[:1] for v, values in columns.items()}, np.array([diff]))})
                    most = max(most, memory.entries() - before)
            written.append(most)
        assert (written[0] == written[1] == written[2] <= 8) == is_constant, written


@pytest.mark.parametrize("seed", range(500, 580))
def test_results_under_dependencies(seed: int) -> None:
    """Rows that keep some random dependencies, over plans that know these."""
    drawn = Drawn.of(seed)
    rng, schemas = drawn.case.rng, drawn.case.schemas
    variables = sorted({v for schema in schemas.values() for v in schema})
    sigma = [
        (x, y)
        for x in variables
        for y in variables
        if x < y and rng.random() < 0.5 and any({x, y} <= set(schema) for schema in schemas.values())
    ]
    sigma = list({y: (x, y) for x, y in sigma}.values())  # each is determined by one variable, so that none contradict

    def kept(values: dict[str, int]) -> dict[str, int]:
        for x, y in sorted(sigma, key=lambda pair: pair[1]):
            if x in values and y in values:
                values[y] = (values[x] * 7 + variables.index(y)) % 3
        return values

    steps: list[Bag] = []
    for step in drawn.case.steps:
        steps.append({})
        for name, change in step.items():
            moved: Counter[Row] = Counter()
            for row, times in change.items():
                moved[tuple(kept(dict(zip(schemas[name], row, strict=True)))[v] for v in schemas[name])] += times
            steps[-1][name] = moved
    drawn.case.steps = steps
    dependencies = tuple(Dependency((x,), (y,)) for x, y in sigma)
    memory = InMemory(planned(schemas, drawn.free, rng.choice([1, 3]), dependencies=dependencies))
    for n, step in enumerate(steps, start=1):
        apply(memory, step, schemas)
        drawn.check(memory, drawn.expected(n))


def test_columns_that_a_key_determines_stay_where_their_table_is() -> None:
    """An item's columns are kept once per item, not once per row that has the item."""
    schemas: Schemas = {"Sale": ("item", "day", "units"), "Item": ("item", "kind", "price"), "Day": ("day", "rain")}
    keys = (Dependency(("item",), ("kind", "price")), Dependency(("day",), ("rain",)))
    shown = ("item", "day", "units", "kind", "price", "rain")
    view = planned(schemas, shown, dependencies=keys)
    assert {level.variables: set(level.bound) for level in view.plan.listing}["kind", "price"] == {"item"}
    for one in view.plan.views:
        assert any(set(one.keys) <= set(schema) for schema in schemas.values())


def test_retailer_has_constant_updates_if_a_zip_has_one_location_and_items_never_change() -> None:
    """The paper's conditions for Retailer (Section 9): every lookup of a change is by a whole key, or finds one zip."""
    schemas: Schemas = {
        "Inventory": ("locn", "dateid", "ksn", "units"),
        "Location": ("locn", "zip", "area"),
        "Census": ("zip", "population"),
        "Item": ("ksn", "price"),
        "Weather": ("locn", "dateid", "rain"),
    }
    shown = tuple(dict.fromkeys(v for schema in schemas.values() for v in schema))
    sigma, static = (Dependency(("zip",), ("locn",)),), frozenset({"Item"})
    query = hypergraph(schemas, shown)
    assert promise(query).update == "O(N)"
    assert promise(reduct(query, sigma)).update == "O(N)"
    assert promise(changing(reduct(query, sigma), static)).update == "O(1)"
    view = planned(schemas, shown, dependencies=sigma, static=static)
    assert view.plan.listing[0].variables == ("locn",)
    for trigger in view.plan.triggers:
        for statement in trigger.statements if trigger.relation not in static else ():
            for probe in statement.probes:
                found = view.plan.views[statement.factors[probe.slot]]
                missing = set(found.keys) - set(found.orders[probe.order][: probe.bound])
                assert not missing or (missing == {"locn"} and "zip" in found.keys)
