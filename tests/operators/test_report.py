import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.operators.explained import (
    BIGINT,
    LAST_STEP,
    WAITING_SIZES,
    Trees,
    above,
    customers,
    explained,
    field,
    shared,
    star,
    unlike,
    waiting,
)
from tests.tpch.queries import QUERIES, Query

import headrace as hr
from headrace.datasets import TPCH_SCHEMAS
from headrace.engine.explain import known
from headrace.explain.report import Arrangement, Report, Subject
from headrace.operators.described import DescribedOperator
from headrace.operators.kernel import ViewChange
from headrace.operators.naming import written
from headrace.operators.report import report
from headrace.operators.tree_view import TreeView
from headrace.plan.expression import Expression
from headrace.plan.over import First, OverFunction
from headrace.plan.tree import JoinKind
from headrace.relation.schema import DIFF
from headrace.relation.types import SqlType

FIXTURES = Path(__file__).parents[1] / "fixtures" / "explain"
TABLES = {
    "shop": ("shop_id BIGINT NOT NULL, town STRING", "shop_id"),
    "sale": ("sale_id BIGINT NOT NULL, shop_id BIGINT, price BIGINT", "sale_id"),
    "closed": ("shop_id BIGINT, since DATE", None),
}
# How many shops have how many sales.
HOW_MANY = """
SELECT n, count(*) AS shops
FROM (SELECT shop.shop_id, count(sale_id) AS n FROM shop LEFT JOIN sale ON shop.shop_id = sale.shop_id GROUP BY 1)
GROUP BY n HAVING count(*) > 0 ORDER BY shops DESC
"""
DEAREST = """
SELECT sale_id, price, price + 1 AS more FROM sale
WHERE shop_id NOT IN (SELECT shop_id FROM closed) AND price > (SELECT avg(price) FROM sale)
ORDER BY price DESC, sale_id LIMIT 2
"""
WORDS = """
SELECT DISTINCT soundex(town) AS word, least(price, 9) AS price FROM shop JOIN sale USING (shop_id) WHERE price > 1
UNION ALL SELECT initcap(town), max(shop_id) FROM shop GROUP BY town
"""

Rows = list[tuple[Any, ...]]


def batch(table: str, rows: Rows, diff: int = 1) -> pa.Table:
    names = [part.split()[0] for part in TABLES[table][0].split(", ")]
    return pa.table([list(c) for c in zip(*rows, strict=True)] + [[diff] * len(rows)], names=[*names, DIFF])


FIRST = {
    "shop": batch("shop", [(1, "Bree"), (2, "Dale"), (3, "Esgaroth")]),
    "sale": batch("sale", [(10, 1, 5), (11, 1, 5), (12, 2, 7)]),
}
SECOND = {
    "sale": pa.concat_tables(
        [
            batch("sale", [(12, 2, 7), (10, 1, 5)], -1),
            batch("sale", [(13, 3, 4), (14, 1, 8), (10, 1, 6)]),
        ]
    )
}


def explain(engine: hr.Engine, view: str) -> Report:
    explanation = engine.views[view].explain()
    assert isinstance(explanation, Report)
    return explanation


def operator(explanation: Report, number: int) -> DescribedOperator:
    return next(found for found in explanation["operators"] if found.number == number)


def kept_by(explanation: Report, number: int) -> list[Arrangement]:
    return [arrangement for arrangement in explanation.arrangements if arrangement.owner == f"[{number}]"]


def new_engine(spark: SparkSession, location: Path, executor: str = "inline", buckets: int = 1) -> hr.Engine:
    engine = hr.Engine(spark, location, executor=executor, buckets=buckets)
    for name, (columns, key) in TABLES.items():
        engine.table(name, columns, key=key)
    return engine


@pytest.fixture(scope="module")
def filled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hr.Engine]:
    """Two steps: shops and sales come, and then some sales change."""
    with new_engine(spark, tmp_path_factory.mktemp("operators") / "s") as engine:
        for name, sql in (("how_many", HOW_MANY), ("dearest", DEAREST), ("words", WORDS)):
            engine.view(name, sql, strategy="operators")
        assert explain(engine, "how_many")["operators"][0].taken is None
        engine.apply(FIRST)
        assert through(engine, "how_many") == {
            0: ((6, 0, 0), (4, 0, 0)),  # three pairs, and a shop without a sale
            1: ((3, 0, 0), (3, 0, 0)),
            2: ((3, 0, 0), (3, 0, 0)),  # shops with 0, 1 and 2 sales
        }
        engine.apply(SECOND)
        yield engine


def through(engine: hr.Engine, view: str) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """What each operator took and gave in the last step: inserted, deleted, updated."""
    out = {}
    for o in explain(engine, view)["operators"]:
        assert o.taken is not None
        assert o.given is not None
        passings = (o.taken, o.given)
        out[o.number] = tuple((p.inserted, p.deleted, p.updated) for p in passings)
    return dict(sorted(out.items()))  # type: ignore[arg-type]


def normalised(engine: hr.Engine, view: str) -> Report:
    """What hashing and clocks decide is made the same."""
    planned, schemas = engine.views[view].planned, {name: table.schema for name, table in engine.tables.items()}
    assert isinstance(planned.kernel, TreeView)
    found = known(view, planned, engine._store.latest, schemas).subject
    sizes = {part: replace(size, runs=2, bytes=100) for part, size in found.sizes.items()}
    last_step = LAST_STEP | {"operators": found.last_step["operators"]}
    return report(planned.kernel, replace(found, sizes=sizes, last_step=last_step))


def test_what_went_through_operators(filled: hr.Engine) -> None:
    """The price of sale 10 changed, which nobody reads; 12 left shop 2, 13 came to shop 3 and 14 to shop 1."""
    assert through(filled, "how_many") == {
        # Given: shop 1 with 14 more; shop 2 with NULL for 12, and shop 3 with 13 for NULL, each an update.
        0: ((2, 1, 0), (1, 0, 2)),
        # All three shops have another number of sales: 3 for 2, 0 for 1, 1 for 0.
        1: ((3, 0, 0), (0, 0, 3)),
        # Shops left and came to groups 0 to 3; at the end no shop has 2 sales, one has 3, and 0 and 1 are as before.
        2: ((4, 0, 0), (1, 1, 0)),
    }
    assert filled.views["how_many"].to_arrow().to_pydict() == {"n": [0, 1, 3], "shops": [1, 1, 1]}


def test_what_went_through_operators_in_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of a key are in one bucket, so how many there are does not change what is counted."""
    with new_engine(spark, tmp_path / "s", "spark", buckets=3) as engine:
        engine.view("how_many", HOW_MANY, strategy="operators")
        for changes in (FIRST, SECOND):
            assert engine.apply(changes).ran == "job"
        found = through(engine, "how_many")
        assert found[0] == ((2, 1, 0), (1, 0, 2))
        assert found[1] == ((3, 0, 0), (0, 0, 3))
        assert found[2][1] == (1, 1, 0)


def test_the_explanation_is_that_of_the_committed_state(spark: SparkSession, filled: hr.Engine) -> None:
    with hr.Engine(spark, filled.location, read_only=True) as reader:
        for view in ("how_many", "dearest", "words"):
            assert explain(reader, view) == explain(filled, view)
        assert any(operator.taken for operator in explain(reader, "how_many")["operators"])


@pytest.mark.parametrize("view", ["how_many", "dearest", "words"])
def test_text_of_a_small_example(filled: hr.Engine, view: str) -> None:
    assert str(normalised(filled, view)) + "\n" == (FIXTURES / f"operators_{view}.txt").read_text()


def test_a_step_that_brings_nothing_to_a_view(spark: SparkSession, tmp_path: Path) -> None:
    with new_engine(spark, tmp_path / "s") as engine:
        engine.view("how_many", HOW_MANY, strategy="operators")
        engine.apply({"closed": batch("closed", [(1, None)])})
        explanation = explain(engine, "how_many")
        assert not any(operator.taken or operator.given for operator in explanation["operators"])
        assert "none of its rows came to an operator of this view" in str(explanation)
        # A step that reaches none of a view's operators leaves no numbers in the log.
        assert "operators" not in engine._store.snapshot.summary


def test_plain_values_survive_json(filled: hr.Engine) -> None:
    data = explain(filled, "dearest").to_dict()
    assert json.loads(json.dumps(data)) == data
    assert (data["name"], data["sql"], data["strategy"]) == ("dearest", DEAREST, "operators")
    assert data["why"] == "it was asked for"
    assert set(data) == {
        *("name", "kind", "sql", "strategy", "title", "kept", "step", "why", "buckets", "arrangements", "sections"),
        *("graph", "values", "last_step", "state_bytes"),
    }
    assert set(data["values"]) == {
        *("operators", "sources", "columns", "having", "order", "stages", "exchanges", "exchanged"),
        *("evaluated_by", "evaluated_why"),
    }
    operators, stages = data["values"]["operators"], data["values"]["stages"]
    numbers = [operator["number"] for operator in operators]
    assert numbers == sorted(numbers, reverse=True)
    assert sorted(n for stage in stages for n in stage["operators"]) == sorted(numbers)
    assert set(operators[0]) == {
        *("number", "kind", "text", "residual", "ports", "stage", "where", "why", "not_kept", "takes"),
        *("taken", "given", "extra", "shared"),
    }
    assert "operators" not in data["last_step"]  # they are beside the operators
    assert data["last_step"]["text"].startswith("step 2: ")
    assert data["state_bytes"] == sum(a["bytes"] for a in data["arrangements"]) > 0


def test_every_arrangement_is_explained(filled: hr.Engine) -> None:
    for view in ("how_many", "dearest", "words"):
        kernel = filled.views[view].planned.kernel
        assert isinstance(kernel, TreeView)
        assert len(explain(filled, view).arrangements) == len(kernel.arrangements)


@pytest.fixture(scope="module")
def tpch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hr.Engine]:
    with hr.Engine(spark, tmp_path_factory.mktemp("tpch") / "s", executor="inline", buckets=4) as engine:
        for name, table in TPCH_SCHEMAS.items():
            engine.table(name, table.schema, key=table.key)
        yield engine


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_queries_of_tpch(tpch: hr.Engine, query: Query) -> None:
    tpch.view(query.name, query.sql, strategy="operators")
    explanation = explain(tpch, query.name)
    assert max(map(len, str(explanation).splitlines())) <= 120
    assert {source.table for source in explanation["sources"]} == query.tables
    assert json.loads(json.dumps(explanation.to_dict())) == explanation.to_dict()
    # Fields of operators, which only have numbers, are nowhere in what people read.
    assert not re.search(r"\b[lrkavc]\d+\b", str(explanation))
    svg = ET.fromstring(explanation.to_svg())
    if query.name in ("q13", "q21"):
        assert float(svg.attrib["width"]) <= 1_000


EXPLAINED: dict[str, Callable[[], Report]] = {
    "customers": lambda: explained(customers()),
    "waiting": lambda: explained(waiting()),
    "waiting, sizes known": lambda: explained(waiting(), WAITING_SIZES),
    "star": lambda: explained(star(20)),
    "shared": lambda: explained(shared()),
    "unlike": lambda: explained(unlike()),
    "no step": lambda: explained(unlike(), stepped=False),
}


@pytest.mark.parametrize("make", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_text_fits_a_terminal_and_writes_every_operator_out_once(make: Callable[[], Report]) -> None:
    explanation = make()
    lines = str(explanation).splitlines()
    assert max(map(len, lines)) <= 120
    tree = lines[lines.index("plan") : next(i for i, line in enumerate(lines) if line.startswith("  columns"))]
    for operator in explanation["operators"]:
        written_out = [line for line in tree if f"[{operator.number}] {operator.kind}" in line]
        assert sum("(as above)" not in line for line in written_out) == 1
    for source in explanation["sources"]:
        assert any(source.name in line for line in tree)


def test_names_are_those_of_columns() -> None:
    answer, first, waits, there, *_ = explained(waiting())["operators"]
    assert answer.text == "the rows (s_name, count(*))"
    assert (first.kind, first.text) == ("the first 100 rows", "by count(*) DESC")
    assert waits.text == "count(*) by s_name"
    assert there.text == "on s_nationkey = n_nationkey"
    semi = operator(explained(waiting()), 0)
    assert semi.text == "on lineitem.l_orderkey = lineitem#2.l_orderkey"
    assert semi.residual == "(lineitem.l_suppkey = lineitem#2.l_suppkey)"
    assert semi.ports[0].feeds[0].condition == "(l_receiptdate > 0L)"  # of a table, it is clear whose
    assert semi.where == "by hash of lineitem.l_orderkey"


def test_stages_and_exchanges() -> None:
    unknown = explained(waiting())
    assert [stage.operators for stage in unknown["stages"]] == [(0, 1), (2,), (3,), (4,), (5,), (6, 7)]
    assert unknown["exchanges"] == len(unknown["exchanged"]) == 6
    known = explained(waiting(), WAITING_SIZES)
    assert [stage.operators for stage in known["stages"]] == [(0, 1, 2, 3), (4, 5), (6, 7)]
    assert known["exchanged"] == (
        "changed rows of lineitem, lineitem#2 and lineitem#3 by l_orderkey; "
        "supplier, orders and nation to every bucket",
        "before stage 2: what [3] gives, by s_name",
        "before stage 3: what [5] gives, to one bucket",
    )
    assert "stage 1: [0], [1], [2] and [3], one after the other in every bucket" in str(known)
    # What is joined with a side that is everywhere stays as it was spread before, as long as its rows say how that was.
    assert {operator(known, number).where for number in range(4)} == {"by hash of lineitem.l_orderkey"}
    assert operator(known, 4).where == "by hash of s_name"
    assert operator(known, 7).where == "in one bucket"  # as the rows that it reads
    supplier, rows = operator(known, 2).ports
    assert rows.everywhere is None
    assert supplier.everywhere == (
        "it was expected to have 10,000 rows and the other side 6,000,000, so 4 copies of it are less than what would "
        "have to move"
    )


def test_a_total_comes_after_a_stage_without_operators() -> None:
    t = Trees()
    total = t.group(t.table("sale", "price"), keys=0)
    beside = t.join(t.table("sale", "price"), t.given(total, "a0"), keys=0)
    explanation = explained(t.answer(t.given(beside, "l0")))
    assert explanation["stages"][0].operators == ()
    assert "stage 1: rows are only handed on" in str(explanation)
    assert operator(explanation, beside).ports[1].everywhere == (
        "no column says which rows it is joined with, so it must meet all of them"
    )
    assert "[1] compares every changed row with all rows of the other side" in explanation.step
    assert explanation.to_svg()


def test_what_is_kept_and_what_is_not() -> None:
    plain = explained(customers())
    assert [a.name for a in kept_by(plain, 0)] == ["left rows", "right rows"]
    assert {n.what for n in operator(plain, 0).not_kept} == {"some right rows"}
    fixed = explained(customers(), static=["orders"])
    assert [a.name for a in kept_by(fixed, 0)] == ["right rows"]
    reasons = {n.what: n.why for n in operator(fixed, 0).not_kept}
    assert reasons["left rows"] == "the right side never changes, so nothing looks for partners"
    assert {source.name: source.static for source in fixed["sources"]} == {"customer": False, "orders": True}
    odd = explained(unlike())
    assert [a.name for a in kept_by(odd, 0)] == ["left rows", "right rows", "values and NULLs"]
    assert [a.name for a in kept_by(odd, 3)] == ["all rows", "first rows"]
    best = explained(shared())
    assert [a.name for a in kept_by(best, 1)] == ["groups", "values of count(*)"]
    assert kept_by(best, 1)[1].why == "when the first value leaves, MIN and MAX need the next one"


@pytest.mark.parametrize(
    ("function", "keys", "first", "said"),
    [
        (
            "row_number",
            1,
            First("row_number", 3),
            "[0] reads the first rows of the partitions that change, and no others",
        ),
        ("row_number", 1, None, "[0] reads the partitions that change, as they were and as they are"),
        ("row_number", 0, None, "[0] reads all rows, because they are one partition"),
        ("lag", 1, None, "[0] reads the rows whose frames reach the rows that change"),
        ("lag", 0, None, "[0] reads the rows whose frames reach the rows that change"),
    ],
)
def test_what_window_functions_read_is_said(function: str, keys: int, first: First | None, said: str) -> None:
    t = Trees()
    number = 0 if function == "row_number" else -2
    own = OverFunction(function, BIGINT, f"{function}(amount)", 2 if number else None, number=number)
    over = t.over(t.table("sale", "shop", "day", "amount"), [own], keys, first)
    report = explained(t.answer(t.given(over, "c0", "w0")))
    assert said in report.step
    assert f"{function}(amount)" in str(report)
    assert "all rows of [0]: by partition, each in its order" in str(report)


def test_what_happens_on_the_way() -> None:
    explanation = explained(shared())
    text = str(explanation)
    assert "sale computing (price + fee)" in text
    assert "; then where (count(*) > 10L)" in text
    assert "UNION ALL of" in text
    assert "[3] DISTINCT: sale.shop" in text
    assert text.count("[0] aggregate: count(*) by sale.shop (as above)") == 1


def test_what_catalyst_evaluates_is_said() -> None:
    sound = Expression("SoundEx", SqlType("string"), "soundex(l0)", (field("l0"),))
    t = Trees()
    joined = t.join(t.table("shop", "town"), t.table("sale", "where_to"))
    explanation = explained(t.answer(t.given(joined, sound)))
    assert explanation["operators"][0].ports[0].feeds[0].catalyst == "SoundEx in soundex(town)"
    assert explanation["evaluated_why"] == "what [0] gives on the way to [1]: SoundEx in soundex(town)"
    assert "computing soundex(town), evaluated by Catalyst" in str(explanation)
    assert len(explanation["stages"]) == 2


def test_terminals_get_no_control_characters() -> None:
    t = Trees()
    name = "R\x1b[31m\nx"
    left = t.table(name, f"a{name}", where=above(f"a{name}"))
    explanation = explained(t.answer(t.given(t.join(left, t.table("s", "b")), "l0"), keys=1))
    assert "\x1b" not in str(explanation)
    assert all(line.isprintable() for line in str(explanation).splitlines())


def test_no_step_no_numbers() -> None:
    explanation = explained(customers(), stepped=False)
    assert {(operator.taken, operator.given) for operator in explanation["operators"]} == {(None, None)}
    assert "took" not in str(explanation)
    assert str(ViewChange(1_000, 2, 3)) == "+1,000 -2 ~3"


@pytest.mark.parametrize(
    ("sql", "args", "expected"),
    [
        ("(l0 = r0)", (field("l0"), field("r0")), "(left = right)"),
        # Spark writes a column as the query does.
        ("(x.value = `y z`.value)", (field("l0"), field("r0")), "(left = right)"),
        ("CAST(value AS DECIMAL(38,4))", (field("l0"),), "CAST(left AS DECIMAL(38,4))"),
        ("l0 LIKE 'l0 %'", (field("l0"), Expression("literal", SqlType("string"), "'l0 %'")), "left LIKE 'l0 %'"),
        ("CASE WHEN l0 THEN r0 END", (field("l0"), field("r0")), "CASE WHEN left THEN right END"),
        ("(l0 + 1)", (field("l0"), Expression("literal", SqlType("int"), "1", value=1)), "(left + 1)"),
        # Where it is not clear which words are columns, the text stays.
        ("odd(l0 r0 b)", (field("l0"), field("r0")), "odd(l0 r0 b)"),
        ("odd()", (above("l0"),), "odd()"),
    ],
)
def test_expressions_get_the_names_of_columns(sql: str, args: tuple[Expression, ...], expected: str) -> None:
    names = {"l0": "left", "r0": "right"}
    assert written(Expression("Odd", SqlType("boolean"), sql, args), names.__getitem__) == expected


def test_what_the_planner_knows_of_an_operator_is_shown_beside_it() -> None:
    tree = customers()
    kernel = TreeView(tree, 0, 4, {})
    found = report(
        kernel, Subject("v", "SELECT ...", "operators", "why", 4), extra={0: {"live": 5, "waiting": "2 for orders"}}
    )
    assert operator(found, 0).extra == {"live": 5, "waiting": "2 for orders"}
    assert "  [0]        live: 5; waiting: 2 for orders" in str(found).splitlines()
    assert "waiting: 2 for orders" in found.to_svg()


def test_names_do_not_grow_without_end() -> None:
    t = Trees()
    rows = t.table("t", "x")
    for _ in range(12):
        both = Expression("Add", SqlType("bigint"), "(k0 + k0)", (field("k0"), field("k0")))
        rows = t.given(t.group(rows, keys=1, aggregates=()), both)
    explanation = explained(t.answer(rows, keys=1))
    assert len(explanation["operators"][0].text) < 200
    assert explanation["operators"][0].text.startswith("count(*) by ((")


def test_joins_of_all_kinds_are_named() -> None:
    for kind in JoinKind:
        t = Trees()
        outputs = ("l0", "x") if kind is JoinKind.FLAG else ("l0",)
        joined = t.join(t.table("r", "a"), t.table("s", "b"), kind, outputs=outputs)
        explanation = explained(t.answer(t.given(joined, *outputs)))
        assert operator(explanation, 0).kind == kind.value
        if kind is JoinKind.FLAG:
            assert explanation["operators"][0].text == "the rows (a, exists)"
