"""The three written forms of an order: each reads what it writes, and says on which line it cannot."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import VariableOrderError
from headrace.factorized.order import Node, VariableOrder, completed
from headrace.factorized.order_text import from_fivm, from_json, from_text, parse, to_fivm, to_json, to_text
from headrace.plan.hypergraph import Hypergraph, Relation

QUERY = Hypergraph((Relation("R", ("A", "B")), Relation("S", ("A", "C", "E")), Relation("T", ("C", "D"))))
TEXT = """\
A
  B: R
  C !stop
    E: S
    D: T"""
FIVM = """\
5 3
0 A int -1 {} 0
1 B double 0 {0} 0
2 C double 0 {0} 0
3 E double 2 {0,2} 0
4 D double 2 {2} 0
R 1 A,B
S 3 A,C,E
T 4 C,D"""
PLAIN = TEXT.replace(" !stop", "")

names = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1, max_size=5)
nodes = st.recursive(
    st.builds(Node, names, st.just(()), st.lists(names, max_size=2).map(tuple), st.booleans()),
    lambda inner: st.builds(
        Node, names, st.lists(inner, max_size=3).map(tuple), st.lists(names, max_size=2).map(tuple), st.booleans()
    ),
    max_leaves=8,
)
orders = st.lists(nodes, max_size=3).map(tuple).map(VariableOrder)


@settings(max_examples=200, deadline=None)
@given(orders)
def test_text_and_json_round_trip_whatever_the_names(order):
    assert from_text(to_text(order)) == order
    assert parse(to_text(order)) == order
    assert from_json(to_json(order)) == order
    assert parse(to_json(order)) == order
    assert parse(json.dumps(to_json(order))) == order


def test_the_text_reads_as_a_tree():
    order = VariableOrder(
        (
            Node(
                "A",
                (
                    Node("B", (), ("R",)),
                    Node("C", (Node("E", (), ("S",)), Node("D", (), ("T",))), stop_pushdown=True),
                ),
            ),
        )
    )
    assert to_text(order) == TEXT
    assert from_text(TEXT) == order


def test_comments_blank_lines_other_indentation_and_line_ends_are_read():
    assert from_text(
        "# a comment\r\nA\r\n\r\n    B :R\r\n    C   !stop\r\n     E: S\r\n     # more\r\n     D: T\r\n\r\n"
    ) == from_text(TEXT)
    assert from_text("\ufeffA: R ,S") == VariableOrder((Node("A", (), ("R", "S")),))


def test_names_with_other_characters_stand_in_backticks():
    order = VariableOrder((Node("unit price", (), ("a:b", "tick`")), Node("#1")))
    assert to_text(order) == "`unit price`: `a:b`, `tick```\n`#1`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A\n    B\n  C", "Line 3.*indentation"),
        ("  A\nB", "Line 2.*indentation"),
        ("A\n\tB", "Line 2.*tab"),
        ("A\n  B C", "Line 2.*found 'B C'"),
        ("A\n\n  B:", "Line 3.*after the colon"),
        ("A\n  B: R,, S", "Line 2.*after the colon"),
        ("A !go", "Line 1.*found 'A !go'"),
        ('{"roots": [\n{"variable" "A"}]}', "Line 2.*not JSON"),
        ("2 1\n0 A int -1 {} 0\n1 B int 0 0\nR 1 A,B", "Line 3.*expected `id name type parent"),
        ("2 1\n0 A int -1 {} 0\n\n0 B int 0 {0} 0\nR 0 A,B", "Line 4.*id 0 was given on line 2"),
        ("2 1\n0 A int -1 {} 0\n1 B int 7 {0} 0\nR 1 A,B", "Line 3.*no variable has the id 7"),
        ("2 1\n0 A int 1 {} 0\n1 B int 0 {0} 0\nR 1 A,B", "Line 2.*below itself"),
        ("2 1\n0 A int -1 {} 0\n1 B int 0 {0} 0\nR 5 A,B", "Line 4.*no variable has the id 5"),
        ("2 1\n0 A int -1 {} 0\n1 B int 0 {0} 0\nR A,B", "Line 4.*expected `NAME leaf-id"),
        ("3 1\n0 A int -1 {} 0\n1 B int 0 {0} 0\nR 1 A,B", "Line 4.*ends after 3 lines"),
    ],
)
def test_errors_name_the_line(text, message):
    with pytest.raises(VariableOrderError, match=message) as error:
        parse(text)
    assert error.value.way_out


def test_a_file_of_fivm_starts_with_two_numbers():
    for text in ("", "A\n  B"):
        with pytest.raises(VariableOrderError, match=r"Line 1.*#variables #relations"):
            from_fivm(text)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "roots"),
        ({"roots": {}}, "roots of the JSON.*list"),
        ({"roots": ["A"]}, r"roots\[0\].*object"),
        ({"roots": [{}]}, r"roots\[0\]\.variable.*string"),
        ({"roots": [{"variable": "A", "children": [{"variable": 1}]}]}, r"roots\[0\]\.children\[0\]\.variable"),
        ({"roots": [{"variable": "A", "relations": "RS"}]}, r"roots\[0\]\.relations.*list"),
        ({"roots": [{"variable": "A", "relations": [1]}]}, r"roots\[0\]\.relations\[0\]"),
        ({"roots": [{"variable": "A", "stop": True}]}, "unknown member stop"),
        ({"roots": [{"variable": "A", "stop_pushdown": 1}]}, "true or false"),
    ],
)
def test_errors_name_the_element_of_the_json(value, message):
    with pytest.raises(VariableOrderError, match=message):
        parse(value)


def test_files_of_fivm():
    assert to_fivm(from_text(PLAIN), QUERY, {"A": "int"}) == FIVM
    assert from_fivm(FIVM) == from_text(PLAIN)
    assert parse("\n" + FIVM.replace("{0,2} 0", "{ 0, 2 }").replace("A,C,E", "A, C, E") + "\n") == from_text(PLAIN)


def test_fivm_gets_the_variables_that_were_left_out():
    short = from_text("A\n  C")
    assert from_fivm(to_fivm(short, QUERY)) == completed(short, QUERY)


def test_what_fivm_cannot_hold_is_refused():
    with pytest.raises(VariableOrderError, match="stop_pushdown, which variable C has"):
        to_fivm(from_text(TEXT), QUERY)
    with pytest.raises(VariableOrderError, match="the name 'a b'"):
        to_fivm(from_text("`a b`"), Hypergraph((Relation("R", ("a b",)),)))


def test_what_a_line_cannot_hold_is_refused():
    for name in ("", "two\nlines"):
        with pytest.raises(VariableOrderError, match="does not fit a line"):
            to_text(VariableOrder((Node(name),)))


def test_a_mark_behind_a_relation_keeps_its_local_variables_unsummed():
    query = Hypergraph((Relation("R", ("A", "X", "Y")), Relation("S", ("A", "Z"))))
    order = from_text("A: R !stop, S")
    assert to_text(order) == "A: R !stop, S"
    assert from_json(to_json(order)) == order
    marked = {node.variable for node in completed(order, query).nodes() if node.stop_pushdown}
    assert marked == {"X", "Y"}
