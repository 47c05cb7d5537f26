"""Changes of views that are products: their parts are runs over keys that no other part has.

The change of a view that follows from a product of rows is a product as well (F-IVM, Section 6), as long as nothing
that it is joined with has keys of several parts. Its entries are every combination of an entry per part, with the
product of their payloads. They are made only where the view is kept, because then they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.errors import BadRowsError
from headrace.factorized.algebra import Algebra, Scope
from headrace.factorized.matches import Matches, grouped
from headrace.operators.kernel import Incoming
from headrace.relation.columns import take_column
from headrace.relation.run import Run, merge
from headrace.relation.variables import Variables
from headrace.rings import Group, Payload

MOST_ENTRIES = 1 << 27
"""Entries of a kept view that one product may become: they are made in memory."""


@dataclass(frozen=True)
class Part(Run):
    """A factor of a product: a run that says what its keys are, and what its payloads cover.

    It is a run, so that it travels to buckets and stages like any other change. Only in the driver, though: files have
    no place for the two fields.
    """

    keys: tuple[str, ...] = ()
    scope: Scope = ()


Product = tuple[Part, ...]


@dataclass
class Change:
    """The change of a view: entries, and products that stay in their parts."""

    run: Run | None = None
    products: list[Product] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.products) or (self.run is not None and self.run.rows > 0)

    def with_runs(self, group: Group, runs: Sequence[Run]) -> Change:
        """The change with more entries."""
        return Change.sum(group, [self, *map(Change, runs)])

    @classmethod
    def sum(cls, group: Group, changes: Sequence[Change]) -> Change:
        """The sum of changes."""
        runs = [change.run for change in changes if change.run is not None and change.run.rows]
        run = merge(group, runs) if runs else None
        return cls(run, [product for change in changes for product in change.products])


def entries(product: Sequence[Run]) -> int:
    """How many entries a product has when it is multiplied out."""
    return math.prod(part.rows for part in product)


def is_worth_it(product: Product) -> bool:
    """Whether a product has fewer entries as parts than multiplied out: if not, it goes on as entries."""
    return entries(product) > sum(part.rows for part in product)


def multiplied_out(
    algebra: Algebra, variables: Variables, product: Product, keys: tuple[str, ...], scope: Scope, where: str
) -> Run:
    """All entries of a product, as the change of a view with some keys."""
    if entries(product) > MOST_ENTRIES:
        raise BadRowsError(
            f"a product of {' x '.join(f'{part.rows:,}' for part in product)} entries is multiplied out in {where}, "
            f"which is kept: at most {MOST_ENTRIES:,} entries are made at a time",
            way_out="apply it in several steps, of smaller parts; view.explain() says why the view is kept",
        )
    matches = Matches(product[0].rows, {}, {}, {})
    for slot, part in enumerate(product):
        rows = 1 if slot == 0 else matches.rows
        if slot:
            matches.take(np.repeat(np.arange(rows), part.rows))
        matches.join(slot, part, np.tile(np.arange(part.rows), rows), variables, part.keys)
    payloads, scopes = [part.payload for part in product], [part.scope for part in product]
    is_sorted = tuple(key for part in product for key in part.keys) == keys
    return summed(algebra, variables, matches, payloads, scopes, keys, scope, is_sorted=is_sorted)


def summed(
    algebra: Algebra,
    variables: Variables,
    matches: Matches,
    payloads: Sequence[Payload],
    scopes: Sequence[Scope],
    keys: tuple[str, ...],
    scope: Scope,
    lifted: Sequence[str] = (),
    *,
    is_sorted: bool = False,
) -> Run:
    """The sums of matches by some keys: the products of their payloads, with some variables lifted."""
    index = np.stack([matches.index[slot] for slot in range(len(payloads))])
    values = [matches.numbers(variables, name) for name in lifted]
    heads, group_of, first = grouped(matches.key(variables, keys), is_sorted and bool(keys))
    payload = algebra.product_sum(scopes, scope, payloads, index, lifted, values, group_of, heads.shape[1])
    shown = {name: found for name, found in matches.texts.items() if name in keys}
    texts = {name: take_column(text, matches.index[slot][first]) for name, (slot, text) in shown.items()}
    run = Run(heads, payload, texts)
    zero = algebra.group_of(scope).is_zero(payload)
    return run.take(np.flatnonzero(~zero)) if zero.any() else run


# -- on the way -------------------------------------------------------------------------------------------------------


def part_label(name: str, term: str, number: int) -> str:
    """Name a part of a product on its way to an input of a stage."""
    return f"{name}*{term}*{number}"


def input_of(label: str) -> str:
    """The input that a part, or an ordinary change, is on its way to."""
    return label.split("*", 1)[0]


def arrived(incoming: Incoming) -> tuple[dict[str, Sequence[Run]], dict[str, list[Product]]]:
    """What came, by input: ordinary changes, and products put together again from their parts."""
    plain: dict[str, Sequence[Run]] = {}
    terms: dict[tuple[str, str], dict[int, Part]] = {}
    for label, runs in incoming.items():
        if "*" not in label:
            plain[label] = runs
            continue
        name, term, number = label.split("*")
        (part,) = runs
        assert isinstance(part, Part), "products stay in the process that takes the step"
        terms.setdefault((name, term), {})[int(number)] = part
    products: dict[str, list[Product]] = {}
    for (name, _), parts in terms.items():
        products.setdefault(name, []).append(tuple(parts[number] for number in sorted(parts)))
    return plain, products


def labelled(name: str, products: Mapping[str, Product]) -> dict[str, Run]:
    """The parts of some products, each product with the name of its term, under the labels that they travel by."""
    return {
        part_label(name, term, number): part
        for term, product in products.items()
        for number, part in enumerate(product)
    }
