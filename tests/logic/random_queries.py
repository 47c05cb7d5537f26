"""Random queries over three small tables.

A query is put together from SELECTs in brackets: each piece is a whole SELECT with column names that no other piece
has, so that any piece fits into any other, and what one query can say is bounded by its depth only. Columns are of
integers and texts, for which Spark and DuckDB agree on everything that is used here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

INT, TEXT, REAL = "BIGINT", "STRING", "DOUBLE"
TABLES = {
    "r": (("a", INT), ("b", INT), ("p", TEXT)),
    "s": (("a", INT), ("c", INT), ("q", TEXT)),
    "t": (("b", INT), ("c", INT), ("p", TEXT)),
}
JOINS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", "CROSS JOIN")
SETS = ("UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")

Column = tuple[str, str]  # a name and a type


@dataclass(frozen=True)
class Piece:
    """A SELECT, and what its columns are."""

    sql: str
    columns: tuple[Column, ...]
    ordered: bool = False

    @property
    def names(self) -> str:
        return ", ".join(name for name, _ in self.columns)

    def of(self, kind: str) -> list[str]:
        return [name for name, k in self.columns if k == kind]


class Queries:
    """Makes one query, with names of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = 0

    def query(self, depth: int) -> Piece:
        """A piece, in an order now and then, or with averages of groups, which nothing may be built upon."""
        roll = self.rng.random()
        piece = self.piece(depth)
        if roll < 0.15:
            return self._top(piece, ordered=True)
        return self._grouped(piece, reals=True) if roll < 0.3 else piece

    def piece(self, depth: int) -> Piece:
        if depth <= 0:
            return self._scan()
        kinds = [self._filter, self._filter, self._project, self._join, self._join, self._join]
        kinds += [self._group, self._group, self._distinct, self._set, self._set, self._limit, self._with_scalar]
        kinds.append(self._counted)
        return self.rng.choice(kinds)(depth - 1)

    # -- kinds of pieces ----------------------------------------------------------------------------------------

    def _scan(self) -> Piece:
        table = self.rng.choice(list(TABLES))
        columns = [(name, self._name(), kind) for name, kind in TABLES[table]]
        select = ", ".join(f"{old} AS {new}" for old, new, _ in columns)
        return Piece(f"SELECT {select} FROM {table}", tuple((new, kind) for _, new, kind in columns))

    def _filter(self, depth: int) -> Piece:
        child = self.piece(depth)
        return Piece(f"SELECT {child.names} FROM {self._from(child)} WHERE {self._where(child, depth)}", child.columns)

    def _project(self, depth: int) -> Piece:
        child = self.piece(depth)
        made = [self._expression(child) for _ in range(self.rng.randint(1, 4))]
        return self._select(made, f"FROM {self._from(child)}")

    def _join(self, depth: int) -> Piece:
        left, right = self.piece(depth), self.piece(self.rng.randint(0, depth))
        kind = self.rng.choice(JOINS)
        on = "" if kind == "CROSS JOIN" else f" ON {self._on(left, right)}"
        shown = left.columns if kind in ("SEMI JOIN", "ANTI JOIN") else left.columns + right.columns
        shown = tuple(self.rng.sample(shown, min(len(shown), 5)))
        names = ", ".join(name for name, _ in shown)
        return Piece(f"SELECT {names} FROM {self._from(left)} {kind} {self._from(right)}{on}", shown)

    def _group(self, depth: int) -> Piece:
        return self._grouped(self.piece(depth), reals=False)

    def _distinct(self, depth: int) -> Piece:
        child = self._project(depth)
        return Piece(f"SELECT DISTINCT {child.names} FROM {self._from(child)}", child.columns)

    def _set(self, depth: int) -> Piece:
        left, right = self.piece(depth), self.piece(self.rng.randint(0, depth))
        kinds = self.rng.choices((INT, TEXT), k=self.rng.randint(1, 3))
        sides = [self._cast_to(kinds, piece) for piece in (left, right)]
        return Piece(f"({sides[0].sql}) {self.rng.choice(SETS)} ({sides[1].sql})", sides[0].columns)

    def _limit(self, depth: int) -> Piece:
        return self._top(self.piece(depth), ordered=False)

    def _counted(self, depth: int) -> Piece:
        """Rows of which only the number is read, so that a LIMIT may choose among them as it likes."""
        child = self.piece(depth)
        rows = f"(SELECT {child.names} FROM {self._from(child)}{self._some()}) AS {self._name()}"
        roll = self.rng.random()
        if roll < 0.4:
            return self._select([("count(*)", INT)], f"FROM {rows}")
        if roll < 0.7:
            return self._select([(f"CAST({self.rng.randint(0, 2)} AS {INT})", INT)], f"FROM {rows}")
        beside = self.piece(self.rng.randint(0, depth))
        join = self.rng.choice([f"CROSS JOIN {rows}", f"LEFT JOIN {rows} ON {self._simple(beside)}"])
        return Piece(f"SELECT {beside.names} FROM {self._from(beside)} {join}", beside.columns)

    def _with_scalar(self, depth: int) -> Piece:
        """One more column: a value of another query, for all rows or for each row its own."""
        child, inner = self.piece(depth), self.piece(self.rng.randint(0, depth))
        value = self._aggregate(inner, reals=False)
        where = self._correlation(child, inner) if self.rng.random() < 0.5 and not _united(child) else ""
        scalar = f"(SELECT {value[0]} FROM {self._from(inner)}{where})"
        made = [*child.columns[:4], (scalar, value[1])]
        return self._select(made, f"FROM {self._from(child)}")

    # -- parts of pieces ----------------------------------------------------------------------------------------

    def _grouped(self, child: Piece, reals: bool) -> Piece:
        keys = [self._expression(child) for _ in range(self.rng.choice([0, 1, 1, 2]))]
        made = keys + [self._aggregate(child, reals) for _ in range(self.rng.randint(1, 3))]
        by, rolled_up = ", ".join(key for key, _ in keys), self.rng.random() < 0.1
        group = f" GROUP BY {f'ROLLUP ({by})' if rolled_up else by}" if keys else ""
        having = f" HAVING {self.rng.choice(['count(*) > 1', 'count(*) % 2 = 1'])}" if self.rng.random() < 0.2 else ""
        if keys and rolled_up and not having:
            having = " HAVING count(*) > 0"  # over no rows, DuckDB has a total here, and Spark has none
        where = f" WHERE {self._simple(child)}" if self.rng.random() < 0.2 else ""
        return self._select(made, f"FROM {self._from(child)}{where}{group}{having}")

    def _top(self, child: Piece, ordered: bool) -> Piece:
        """The first rows by an order of all columns, so that which rows these are is no matter of luck."""
        names = self.rng.sample([name for name, _ in child.columns], len(child.columns))
        order = ", ".join(
            f"{n} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}" for n in names
        )
        offset = f" OFFSET {self.rng.randint(1, 3)}" if self.rng.random() < 0.25 else ""
        limit = f" LIMIT {self.rng.choice([1, 2, 3, 5])}{offset}"
        return Piece(f"SELECT {child.names} FROM {self._from(child)} ORDER BY {order}{limit}", child.columns, ordered)

    def _cast_to(self, kinds: list[str], child: Piece) -> Piece:
        made: list[Column] = []
        for kind in kinds:
            names = child.of(kind)
            made.append((self.rng.choice(names) if names else f"CAST(NULL AS {kind})", kind))
        return self._select(made, f"FROM {self._from(child)}")

    def _select(self, made: list[Column], rest: str) -> Piece:
        columns = tuple((self._name(), kind) for _, kind in made)
        select = ", ".join(f"{sql} AS {name}" for (sql, _), (name, _) in zip(made, columns, strict=True))
        return Piece(f"SELECT {select} {rest}", columns)

    def _from(self, piece: Piece) -> str:
        return f"({piece.sql}) AS {self._name()}"

    def _name(self) -> str:
        self.names += 1
        return f"x{self.names}"

    # -- expressions --------------------------------------------------------------------------------------------

    def _expression(self, child: Piece) -> Column:
        name, kind = self.rng.choice(child.columns)
        if self.rng.random() < 0.5:
            return name, kind
        if kind == TEXT:
            made = [f"upper({name})", f"coalesce({name}, '?')", f"substring({name}, 1, 1)", f"{name} || '.'"]
            return (f"CAST(length({name}) AS {INT})", INT) if self.rng.random() < 0.2 else (self.rng.choice(made), TEXT)
        other = self.rng.choice(child.of(INT))
        made = [f"{name} + 1", f"{name} % 3", f"coalesce({name}, 0)", f"-{name}", f"{name} - {other}"]
        made.append(f"CASE WHEN {self._simple(child)} THEN {name} ELSE {other} END")
        return self.rng.choice(made), INT

    def _aggregate(self, child: Piece, reals: bool) -> Column:
        ints = child.of(INT)
        name, kind = self.rng.choice(child.columns)
        made: list[Column] = [("count(*)", INT), (f"count({name})", INT), (f"count(DISTINCT {name})", INT)]
        made += [(f"min({name})", kind), (f"max({name})", kind)]
        if ints:
            number = self.rng.choice(ints)
            made += [(f"{f}({number})", INT) for f in ("sum", "sum", "sum")] + [(f"sum(DISTINCT {number})", INT)]
            if reals:
                made += [(f"avg({number})", REAL), (f"avg(DISTINCT {number})", REAL)] * 3
        sql, out = self.rng.choice(made)
        sql += f" FILTER (WHERE {self._simple(child)})" if self.rng.random() < 0.15 else ""
        return sql, out

    def _where(self, child: Piece, depth: int) -> str:
        roll = self.rng.random()
        if roll < 0.4:
            return self._simple(child)
        if roll < 0.55:
            return f"({self._where(child, depth)}) {self.rng.choice(['AND', 'OR'])} ({self._where(child, depth)})"
        return f"NOT ({self._subquery(child, depth)})" if roll < 0.6 else self._subquery(child, depth)

    def _subquery(self, child: Piece, depth: int) -> str:
        inner = self.piece(self.rng.randint(0, max(0, depth - 1)))
        correlated = self._correlation(child, inner) if self.rng.random() < 0.5 else ""
        kind = self.rng.choice(["in", "in", "exists", "exists", "scalar"])
        limited = self.rng.random() < 0.3
        if kind == "in":
            for name, found in self.rng.sample(child.columns, len(child.columns)):
                if names := inner.of(found):
                    negated = self.rng.choice(["", "NOT "])
                    chosen = self.rng.choice(names)
                    first = self._first(chosen) + self._some() if limited else ""
                    return f"{name} {negated}IN (SELECT {chosen} FROM {self._from(inner)}{correlated}{first})"
        if kind == "scalar" and child.of(INT):
            where = "" if _united(child) else correlated
            value, first = self._whole_number(inner), ""
            if limited and inner.of(INT):
                value = self.rng.choice(inner.of(INT))
                first = f"{self._first(value)} LIMIT 1{self.rng.choice(['', ' OFFSET 1', ' OFFSET 2'])}"
            return (
                f"{self.rng.choice(child.of(INT))} {self.rng.choice(['=', '<', '>=', '<>'])} "
                f"(SELECT {value} FROM {self._from(inner)}{where}{first})"
            )
        if not correlated and self.rng.random() < 0.3:  # only by a condition on the outer row
            correlated = f" WHERE {self._simple(child)}"
        shown, first = self.rng.choice(["1", inner.names]), ""
        if limited:
            first = self.rng.choice(["", self._first(inner.columns[0][0])]) + self._some()
        return f"{self.rng.choice(['', 'NOT '])}EXISTS (SELECT {shown} FROM {self._from(inner)}{correlated}{first})"

    def _first(self, name: str) -> str:
        """An order by one column."""
        return f" ORDER BY {name} {self.rng.choice(['ASC', 'DESC'])} NULLS {self.rng.choice(['FIRST', 'LAST'])}"

    def _some(self) -> str:
        """LIMIT and OFFSET."""
        limit, offset = f" LIMIT {self.rng.choice([1, 1, 2, 5])}", f" OFFSET {self.rng.choice([1, 2, 5])}"
        return self.rng.choice([limit, limit, offset, limit + offset])

    def _whole_number(self, inner: Piece) -> str:
        ints = inner.of(INT)
        return self.rng.choice(
            [f"{f}({self.rng.choice(ints)})" for f in ("max", "min", "sum")] if ints else ["count(*)"]
        )

    def _correlation(self, outer: Piece, inner: Piece) -> str:
        """A WHERE of the inner query that speaks of the outer one: an equality, which is all that Spark takes."""
        pairs = [(o, i) for o, ok in outer.columns for i, ik in inner.columns if ok == ik]
        if not pairs:
            return ""
        left, right = self.rng.choice(pairs)
        return f" WHERE {right} = {left}"

    def _on(self, left: Piece, right: Piece) -> str:
        pairs = [(lc, rc) for lc, lk in left.columns for rc, rk in right.columns if lk == rk]
        ints = [(lc, rc) for lc in left.of(INT) for rc in right.of(INT)]
        if not pairs:
            return self.rng.choice([self._simple(left), self._simple(right)])
        roll = self.rng.random()
        if roll < 0.15 and ints:
            one, other = self.rng.choice(ints)
            return f"{one} {self.rng.choice(['<', '<>', '>='])} {other}"
        sign = "IS NOT DISTINCT FROM" if roll < 0.25 else "="
        terms = [
            f"{one} {sign} {other}"
            for one, other in self.rng.sample(pairs, min(len(pairs), self.rng.choice([1, 1, 2])))
        ]
        if self.rng.random() < 0.3:
            one, other = self.rng.choice(ints or pairs)
            terms.append(self.rng.choice([self._simple(left), self._simple(right), f"{one} <= {other}"]))
        return " AND ".join(f"({term})" for term in terms)

    def _simple(self, child: Piece) -> str:
        """A condition on the columns of one piece, without subqueries."""
        name, kind = self.rng.choice(child.columns)
        if self.rng.random() < 0.2:
            return f"{name} IS {self.rng.choice(['', 'NOT '])}NULL"
        if kind == TEXT:
            return self.rng.choice([f"{name} LIKE 'a%'", f"{name} >= 'a'", f"{name} IN ('', 'B')", f"{name} <> 'b'"])
        other = self.rng.choice(child.of(INT))
        made = [f"{name} > 1", f"{name} <= 0", f"{name} IN (0, 1, NULL)", f"NOT ({name} = 2)", f"{name} < {other}"]
        return self.rng.choice([*made, f"{name} > 2 OR {other} = 1", f"{name} BETWEEN 0 AND {other}"])


def _united(piece: Piece) -> bool:
    """Spark fails ("key not found") where a correlated scalar subquery stands above a UNION ALL."""
    return "UNION ALL" in piece.sql
