"""The joins that tests of view trees and plans run over: that of the paper, a triangle, and random ones."""

from __future__ import annotations

import random

from headrace.plan.hypergraph import Hypergraph, Relation

Schemas = dict[str, tuple[str, ...]]

EXAMPLE: Schemas = {"R": ("A", "B"), "S": ("A", "C", "E"), "T": ("C", "D")}
ORDER = "A\n  B\n  C\n    D\n    E"
"""The query and the variable order of Figure 3."""
TRIANGLE: Schemas = {"R": ("A", "B"), "S": ("B", "C"), "T": ("A", "C")}
CHORD: Schemas = {"R": ("A", "B"), "S": ("B", "C"), "T": ("C", "D"), "U": ("D", "A"), "W": ("A", "C")}
"""The 4-cycle with a chord of Section 7.4."""
CLIQUE: Schemas = {
    "R": ("A", "B"),
    "S": ("A", "C"),
    "T": ("A", "D"),
    "U": ("B", "C"),
    "V": ("B", "D"),
    "W": ("C", "D"),
}
PROJECTED: Schemas = {"R": ("A", "B", "E"), "S": ("B", "C"), "T": ("C", "A"), "U": ("E", "F")}
"""A triangle with a relation that has more than the two variables with which it closes the cycle."""


def hypergraph(schemas: Schemas, free: tuple[str, ...] = ()) -> Hypergraph:
    return Hypergraph(tuple(Relation(name, variables) for name, variables in schemas.items()), free)


def random_schemas(rng: random.Random, relations: int = 5, fresh: int = 2) -> Schemas:
    """A random acyclic join, and now and then a cyclic one: a triangle with something hanging on to it."""
    names = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    made: Schemas = {}
    if rng.random() < 0.25:
        made = {"R0": ("A", "B"), "R1": ("B", "C"), "R2": ("A", "C")}
        names = iter("DEFGHIJKLMNOPQRSTUVWXYZ")
    for number in range(len(made), rng.randint(max(1, len(made)), relations)):
        before = list(rng.choice(list(made.values()))) if made else []
        shared = [v for v in before if rng.random() < 0.6]
        if before and not shared and rng.random() < 0.9:  # a product now and then
            shared = [rng.choice(before)]
        own = [next(names) for _ in range(rng.randint(0 if shared else 1, fresh))]
        schema = shared + own
        rng.shuffle(schema)
        made[f"R{number}"] = tuple(schema)
    return made
