"""The relational ring by the paper's numbers: Examples 40 and 41 of F-IVM, over the database of Figure 6."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.rings import Payload, Relational, take
from headrace.testing import check_ring

RING = Relational()
R = [(1, 1), (1, 2), (2, 3), (3, 4)]  # A, B
S = [(1, 1, 1), (1, 1, 2), (1, 2, 3), (2, 2, 4)]  # A, C, E
T = [(1, 1), (2, 2), (2, 3), (3, 4)]  # C, D
View = dict[Any, Any]


def summed(keys: list[Any], payload: Payload) -> View:
    """A view: key -> payload, as an array of one element."""
    heads = sorted(set(keys))
    total = RING.sum_by(payload, np.array([heads.index(key) for key in keys]), len(heads))
    return {key: take(total, np.array([i])) for i, key in enumerate(heads)}


def one(variable: str, value: object) -> Payload:
    return RING.lift(variable, [value])


def together(payloads: list[Payload]) -> Payload:
    return (np.concatenate([payload[0] for payload in payloads]),)


def views() -> dict[str, View]:
    """The view tree of Figure 3, in which all variables but E are free."""
    at_b = summed([a for a, _ in R], RING.lift("B", [b for _, b in R]))
    at_d = summed([c for c, _ in T], RING.lift("D", [d for _, d in T]))
    at_e = summed([(a, c) for a, c, _ in S], RING.ones(len(S)))
    pairs = [(a, c) for a, c in at_e if c in at_d]
    products = [RING.multiply(RING.multiply(at_e[a, c], at_d[c]), one("C", c)) for a, c in pairs]
    at_c = summed([a for a, _ in pairs], together(products))
    both = [a for a in at_c if a in at_b]
    root = summed(
        [() for _ in both],
        together([RING.multiply(RING.multiply(at_b[a], at_c[a]), one("A", a)) for a in both]),
    )
    return {"B": at_b, "D": at_d, "E": at_e, "C": at_c, "A": root}


def test_the_relational_ring_obeys_the_laws() -> None:
    for seed in range(3):
        check_ring(RING, seed=seed)


def test_example_40_lists_the_result() -> None:
    """The payload of the root is the result (Figure 18, on the right)."""
    (found,) = RING.listed(views()["A"][()], "ABCD")
    assert found == {
        (1, 1, 1, 1): 2,
        (1, 1, 2, 2): 1,
        (1, 1, 2, 3): 1,
        (1, 2, 1, 1): 2,
        (1, 2, 2, 2): 1,
        (1, 2, 2, 3): 1,
        (2, 3, 2, 2): 1,
        (2, 3, 2, 3): 1,
    }
    assert RING.listed(views()["C"][1], "CD") == [{(1, 1): 2, (2, 2): 1, (2, 3): 1}]


def test_example_41_keeps_the_values_of_one_variable_per_view() -> None:
    """With all but its own variable summed away, a view has what a factorization stores (the middle of Figure 18)."""
    made = views()
    at_a = RING.without(made["A"][()], "BCD")
    assert RING.listed(at_a, "A") == [{(1,): 8, (2,): 2}]
    at_c = {a: RING.listed(RING.without(payload, "D"), "C")[0] for a, payload in made["C"].items()}
    assert at_c == {1: {(1,): 2, (2,): 2}, 2: {(2,): 2}}
    assert {a: RING.listed(payload, "B")[0] for a, payload in made["B"].items()} == {
        1: {(1,): 1, (2,): 1},
        2: {(3,): 1},
        3: {(4,): 1},
    }
    assert {c: RING.listed(payload, "D")[0] for c, payload in made["D"].items()} == {
        1: {(1,): 1},
        2: {(2,): 1, (3,): 1},
        3: {(4,): 1},
    }
    assert {key: RING.listed(payload, "")[0] for key, payload in made["E"].items()} == {
        (1, 1): {(): 2},
        (1, 2): {(): 1},
        (2, 2): {(): 1},
    }
