"""Upper and lower case. Python and Spark agree on nearly all letters, and the exceptions are known.

Arrow converts ASCII texts, and Python converts others one by one. Letters that got a counterpart in the last few
versions of Unicode are left to Catalyst, since Python, Java and Spark's ICU each know a different version.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plan.native.rule import Datum, NeedsCatalyst, Rule, of_kind, over_args
from headrace.plan.native.vectors import over_array
from headrace.relation.keys import string_buffers

# All upper planes are disputed but for symbols (emoji) and ideographs, which have no case.
_DISPUTED = (
    r"\x{19b}\x{264}\x{1c80}-\x{1c8f}\x{2c2f}\x{2c5f}\x{a7c0}-\x{a7ff}\x{10000}-\x{1efff}\x{1fb00}-\x{1ffff}"
    r"\x{40000}-\x{10ffff}"
)
_CAPITAL_SIGMA = r"\x{3a3}"  # its small form depends on what surrounds it


def _converted(ascii: Callable[[pa.Array], pa.Array], other: Callable[[str], str], disputed: str) -> Rule:
    def convert(texts: pa.Array) -> pa.Array:
        # ascii_upper and ascii_lower lose texts that do not begin where their buffer does, as in a slice, once cast.
        texts = pa.concat_arrays([texts[:0], texts]) if string_buffers(texts)[0][0] else texts
        is_plain = pc.fill_null(pc.string_is_ascii(texts), True)
        if pc.all(is_plain).as_py() is not False:
            return ascii(texts)
        special = texts.filter(pc.invert(is_plain))
        if pc.any(pc.match_substring_regex(special, f"[{disputed}]")).as_py():
            raise NeedsCatalyst("a letter has a counterpart only in some versions of Unicode")
        by_hand = pa.array([other(text) for text in special.to_pylist()], texts.type)
        # ascii_upper and ascii_lower leave other letters alone, so what they made of the special texts is replaced.
        return pc.replace_with_mask(ascii(texts), pc.invert(is_plain), by_hand)

    def compute(texts: Datum) -> Datum:
        return over_array(convert, texts)

    return Rule(of_kind("string"), over_args(compute))


RULES = {
    "Upper": _converted(pc.ascii_upper, str.upper, _DISPUTED),
    "Lower": _converted(pc.ascii_lower, str.lower, _DISPUTED + _CAPITAL_SIGMA),
}
