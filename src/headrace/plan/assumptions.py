"""Assumptions about tables and queries of which nothing is known yet: one set, for everything that estimates.

Estimates need not be good, only good enough to tell a thousand rows from a million. What they must be is consistent:
the order of a join, its exchanges and the choice of the strategy follow from the same guesses.
"""

from __future__ import annotations

CHANGED_SHARE = 0.001
"""The share of a table that a step changes."""
LOOKED_UP_SHARE = 0.0001
"""The share that a step changes of a table looked up by key: customers change less often than they order."""

UNKNOWN_ROWS = 1_000
"""Rows of a table that is empty and has no `expected_rows`."""
UNKNOWN_FURTHER_KEY = 10
"""How many times more rows an unknown relation has for each further variable joined on; `UNKNOWN_GROWTH` at most."""
UNKNOWN_GROWTH = 1_000
"""How many times more rows an unknown table has if it is not looked up by key, and others of the query are."""

PASSING = 0.5
"""The share of rows that a condition leaves."""
ROWS_A_GROUP = 4
"""How many rows a group has."""
TURNED_SHARE = 0.01
"""The share of rows to which a new value of a scalar subquery makes a difference."""
