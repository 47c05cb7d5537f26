"""The words of rows' groups, as deliveries make them."""

from __future__ import annotations

from headrace.operators.kernel import Evaluated
from headrace.operators.layout import ViewLayout
from headrace.relation.kernels import Words


def group_words(layout: ViewLayout, rows: Evaluated) -> Words:
    return layout.keys.encode(rows.keys) if rows.keys else layout.keys.encode_empty(len(rows.diff))
