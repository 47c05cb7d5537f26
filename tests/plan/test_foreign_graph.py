import pytest

from headrace.plan.expression import Expression, column
from headrace.plan.foreign_graph import ForeignGraph, NotForeign, Reference, foreign_graph
from headrace.plan.join import Source
from headrace.relation.types import SqlType

BIGINT = SqlType("bigint")


def _source(name: str, variables: str, table: str | None = None) -> Source:
    """A source whose columns are called as its variables, or as `column=variable` says."""
    pairs = [part.partition("=") for part in variables.split()]
    bound = tuple((variable or col, column(col, BIGINT, False)) for col, _, variable in pairs)
    return Source(name, table or name, None, bound)


TPCH_KEYS = {
    "region": ("r",),
    "nation": ("n",),
    "supplier": ("s",),
    "customer": ("c",),
    "part": ("p",),
    "partsupp": ("p", "s"),
    "orders": ("o",),
    "lineitem": ("o", "line"),
}


def _graph(*sources: Source, keys: dict[str, tuple[str, ...]] = TPCH_KEYS) -> ForeignGraph:
    found = foreign_graph(sources, keys)
    assert isinstance(found, ForeignGraph), found
    return found


def test_q3_is_a_chain() -> None:
    graph = _graph(_source("customer", "c"), _source("orders", "o c date"), _source("lineitem", "o price"))
    assert graph.root == "lineitem"
    assert graph.sources == ("customer", "orders", "lineitem")
    assert graph.references == (Reference("orders", "customer", ("c",)), Reference("lineitem", "orders", ("o",)))
    assert graph.asserted == {"customer": (), "orders": (), "lineitem": ()}


def test_q5_reaches_nation_by_two_paths_which_must_agree() -> None:
    graph = _graph(
        _source("customer", "c n"),
        _source("orders", "o c"),
        _source("lineitem", "o s"),
        _source("supplier", "s n"),
        _source("nation", "n r name"),
        _source("region", "r"),
    )
    assert graph.root == "lineitem"
    assert {(r.parent, r.child) for r in graph.parents("nation")} == {("customer", "nation"), ("supplier", "nation")}
    assert graph.asserted == dict.fromkeys(graph.sources, ()) | {"lineitem": ("n",)}


def test_q7_has_two_copies_of_nation() -> None:
    graph = _graph(
        _source("supplier", "s n=n1"),
        _source("lineitem", "o s"),
        _source("orders", "o c"),
        _source("customer", "c n=n2"),
        _source("nation", "n=n1", "nation"),
        _source("nation#2", "n=n2", "nation"),
    )
    assert graph.root == "lineitem"
    assert graph.parents("nation") == (Reference("supplier", "nation", ("n1",)),)
    assert graph.parents("nation#2") == (Reference("customer", "nation#2", ("n2",)),)


def test_q9_has_a_composite_key_and_references_that_follow_from_it() -> None:
    graph = _graph(
        _source("part", "p name"),
        _source("supplier", "s n"),
        _source("lineitem", "o p s"),
        _source("partsupp", "p s cost"),
        _source("orders", "o"),
        _source("nation", "n"),
    )
    assert Reference("lineitem", "partsupp", ("p", "s")) in graph.references
    # Part and supplier are reached through partsupp, whose key brings theirs along.
    assert [r.parent for r in graph.parents("part")] == ["partsupp"]
    assert [r.parent for r in graph.parents("supplier")] == ["partsupp"]


def test_a_key_may_be_joined_as_a_wider_number() -> None:
    narrow = column("c", SqlType("int"), False)
    wide = Expression("Cast", BIGINT, "cast(c as bigint)", (narrow,), nullable=False)
    customer = Source("customer", "customer", None, (("c", wide),))
    assert _graph(customer, _source("orders", "o c")).root == "orders"


def test_two_tables_that_refer_to_each_other_by_their_keys() -> None:
    person, passport = _source("person", "id name"), _source("passport", "id number")
    keys = {"person": ("id",), "passport": ("id",)}
    assert _graph(person, passport, keys=keys).root == "person"
    declared = foreign_graph([person, passport], keys, {"passport": ["person"]})
    assert isinstance(declared, ForeignGraph)
    assert declared.root == "passport"


@pytest.mark.parametrize(
    ("sources", "keys", "why"),
    [
        (
            [_source("a", "x y"), _source("b", "x z")],
            {"a": ("k",), "b": ("x", "w")},
            "only the root may be referred to by none, and several of its tables are, so a row may meet many: "
            "a is not joined by k of its key; b is not joined by w of its key",
        ),
        (
            [_source("a", "x"), _source("b", "x")],
            {"a": (), "b": ()},
            "only the root may be referred to by none, and several of its tables are, so a row may meet many: "
            "a has no key; b has no key",
        ),
        (
            [_source("a", "i j"), _source("b", "j k"), _source("c", "k i")],
            {"a": ("i",), "b": ("j",), "c": ("k",)},
            "its references form a cycle: a -> b -> c -> a",
        ),
    ],
)
def test_why_a_query_has_no_such_graph(sources: list[Source], keys: dict[str, tuple[str, ...]], why: str) -> None:
    found = foreign_graph(sources, keys)
    assert isinstance(found, NotForeign)
    assert found.why == why
    assert found.way_out
