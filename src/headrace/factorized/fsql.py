"""Moments as one SQL query: what a database can do at best with the same view tree (F/SQL).

The tree becomes nested subqueries, each of which joins and sums as its view does. SQL has no covariance triples, so
their product is written out: one column for the count, one per sum, and one per product, of which there are
quadratically many. This query is a baseline for payloads in a ring. A second baseline, `over_rows`, sums over the
unchanged join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from headrace.errors import SchemaError
from headrace.factorized.maintenance import MaintenancePlan
from headrace.plan.expression import Expression
from headrace.plan.join import JoinPlan, Source

_PLAIN = "KnownFloatingPointNormalized"  # Spark puts -0.0 and NaN in order itself wherever it joins or groups


def rewrite(
    plan: MaintenancePlan,
    join: JoinPlan,
    features: Sequence[str],
    groups: Sequence[str],
    shifts: Mapping[str, float],
) -> str:
    """Write the moments of a factorized plan as one query.

    Its columns are `g0..` (the groups), `c` (the count), `s0..` (sums of features less their shifts) and `q0_0, q0_1..`
    (sums of products, the upper triangle row by row). A row whose count is 0 or NULL stands for nothing.
    """
    return _Writer(plan, join, tuple(dict.fromkeys(features)), shifts).query(features, groups)


def over_rows(body: str, features: Sequence[str], groups: Sequence[str], shifts: Sequence[float]) -> str:
    """Write the moments of a query's columns as sums over the unchanged query, with the columns of `rewrite`."""
    picked = [f"{quoted(name)} AS g{i}" for i, name in enumerate(groups)]
    numbers = [_number(quoted(name), shift) for name, shift in zip(features, shifts, strict=True)]
    picked += [f"{number} AS x{i}" for i, number in enumerate(numbers)]
    factors = [_lifted(i, f"x{i}") for i in range(len(features))]
    names = [f"g{i}" for i in range(len(groups))]
    there = [f"x{i} IS NOT NULL" for i in range(len(features))]
    # A line break follows the body, because the body may end with a comment.
    rows = f"(SELECT {', '.join(picked)} FROM (\n{body}\n) AS body) AS rows"
    return _select(names, names, _product(factors), rows, there)


def source_rows(source: Source, names: Iterable[str]) -> str:
    """Write the rows of one source with some of its variables, as v0.. in the order given.

    The text of expressions is Catalyst's own, which is SQL for all but a few internal functions.
    """
    expressions = dict(source.variables)
    picked = [f"{_text(expressions[name])} AS v{i}" for i, name in enumerate(names)] or ["1 AS v0"]
    where = "" if source.condition is None else f" WHERE {_text(source.condition)}"
    return f"SELECT {', '.join(picked)} FROM {quoted(source.table)}{where}"


def quoted(name: str) -> str:
    """Quote an identifier as Spark does."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class _Factor:
    """A payload as SQL terms: its count (empty for 1), its sums per feature and its products per pair of features."""

    count: str = ""
    sums: dict[int, str] = field(default_factory=dict)
    products: dict[tuple[int, int], str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Writer:
    plan: MaintenancePlan
    join: JoinPlan
    features: tuple[str, ...]
    shifts: Mapping[str, float]

    @cached_property
    def _below(self) -> dict[int, tuple[int, ...]]:
        """The features of each view's payload, by their numbers."""
        found: dict[int, tuple[int, ...]] = {}

        def of(i: int) -> tuple[int, ...]:
            view = self.plan.views[i]
            own = [self.features.index(name) for name in view.lifted if name in self.features]
            found[i] = tuple(sorted([*own, *(f for child in view.payload for f in of(child))]))
            return found[i]

        of(self.plan.root)
        return found

    def query(self, features: Sequence[str], groups: Sequence[str]) -> str:
        root = self.plan.root
        for i, name in enumerate(self.features):
            if i not in self._below[root]:
                raise SchemaError(
                    f"feature {name!r} is grouped by, so it is the same throughout each group",
                    way_out="leave it out of the features, or out of GROUP BY",
                )
        keys = self.plan.views[root].keys
        at = [self.features.index(name) for name in features]
        columns = [f"{_key(keys, name)} AS g{i}" for i, name in enumerate(groups)]
        columns += ["c", *(f"s{f} AS s{i}" for i, f in enumerate(at))]
        for i, f in enumerate(at):
            columns += [f"{_q(f, g)} AS q{i}_{j}" for j, g in enumerate(at) if j >= i]
        return f"SELECT {', '.join(columns)} FROM ({self._view(root)}) AS moments"

    def _view(self, i: int) -> str:
        """One view: its keys as k0.., then c, s.. and q.. of the features below."""
        view = self.plan.views[i]
        rows, where, values = self._leaf(i) if view.relation is not None else self._joined(i)
        factors = [self._stored(child, f"a{at}") for at, child in enumerate(view.payload)]
        for name in view.lifted:
            if name in self.features:
                factors.append(_lifted(self.features.index(name), _number(values[name], self.shifts.get(name, 0.0))))
        keys = [values[name] for name in view.keys]
        return _select(keys, [f"k{at}" for at in range(len(keys))], _product(factors), rows, where)

    def _leaf(self, i: int) -> tuple[str, list[str], dict[str, str]]:
        view = self.plan.views[i]
        source = next(source for source in self.join.sources if source.name == view.relation)
        names = tuple(dict.fromkeys([*view.keys, *view.lifted]))
        values = {name: f"a0.v{at}" for at, name in enumerate(names)}
        nullable = {name for name, expression in source.variables if expression.nullable}
        there = [n for n in names if n in source.required or (n in self.features and n in nullable)]
        return f"({source_rows(source, names)}) AS a0", [f"{values[n]} IS NOT NULL" for n in there], values

    def _joined(self, i: int) -> tuple[str, list[str], dict[str, str]]:
        values: dict[str, str] = {}
        text = ""
        for at, child in enumerate(self.plan.views[i].payload):
            keys = self.plan.views[child].keys
            own = {name: f"a{at}.{_key(keys, name)}" for name in keys}
            equal = " AND ".join(f"{values[name]} = {own[name]}" for name in keys if name in values)
            joined = "" if not at else " JOIN " if equal else " CROSS JOIN "
            text += f"{joined}({self._view(child)}) AS a{at}{f' ON {equal}' if equal else ''}"
            values = own | values
        return text, [], values

    def _stored(self, view: int, alias: str) -> _Factor:
        features = self._below[view]
        return _Factor(
            f"{alias}.c",
            {f: f"{alias}.s{f}" for f in features},
            {(f, g): f"{alias}.{_q(f, g)}" for f in features for g in features if f <= g},
        )


def _product(factors: Sequence[_Factor]) -> dict[str, str]:
    """The columns of a sum of products of payloads (Section 8.1: the product of covariance triples)."""
    owner = {f: at for at, factor in enumerate(factors) for f in factor.sums}

    def times(terms: Mapping[int, str]) -> str:
        """Multiply terms of some factors by the counts of all others."""
        return " * ".join(filter(None, (terms.get(at, factor.count) for at, factor in enumerate(factors))))

    # Counts are doubles, as they are in the ring: products of them may not fit into 64 bits.
    count = times({})
    columns = {"c": f"SUM({count})" if count else "CAST(COUNT(*) AS DOUBLE)"}
    for f in sorted(owner):
        columns[f"s{f}"] = f"SUM({times({owner[f]: factors[owner[f]].sums[f]})})"
    for f in sorted(owner):
        for g in sorted(owner):
            if f <= g:
                left, right = factors[owner[f]], factors[owner[g]]
                same = owner[f] == owner[g]
                terms = {owner[f]: left.products[f, g]} if same else {owner[f]: left.sums[f], owner[g]: right.sums[g]}
                columns[_q(f, g)] = f"SUM({times(terms)})"
    return columns


def _lifted(feature: int, value: str) -> _Factor:
    return _Factor("", {feature: value}, {(feature, feature): f"{value} * {value}"})


def _select(
    keys: Sequence[str], names: Sequence[str], columns: Mapping[str, str], rows: str, where: Sequence[str]
) -> str:
    shown = [f"{key} AS {name}" for key, name in zip(keys, names, strict=True)]
    shown += [f"{text} AS {name}" for name, text in columns.items()]
    text = f"SELECT {', '.join(shown)} FROM {rows}"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    return text + (f" GROUP BY {', '.join(keys)}" if keys else "")


def _number(value: str, shift: float) -> str:
    number = f"CAST({value} AS DOUBLE)"
    return f"({number} - ({shift:.17e}))" if shift else number


def _key(keys: Sequence[str], name: str) -> str:
    return f"k{keys.index(name)}"


def _q(f: int, g: int) -> str:
    return f"q{min(f, g)}_{max(f, g)}"


def _text(expression: Expression) -> str:
    if expression.op == "column":
        return quoted(str(expression.value))
    if expression.op == _PLAIN:
        return _text(expression.args[0].args[0])
    return expression.sql
