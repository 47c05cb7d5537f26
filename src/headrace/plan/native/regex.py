"""Regular expressions: Java's as RE2's, where both accept the very same texts.

RE2 is asked only whether a text has a match, so nothing depends on which match is found first. Where the two languages
differ the difference is written out: what a dot leaves out, what white space is, and that Java's `$` also stands before
a last line break. Everything that is not read here (look-around, flags, word boundaries, ...) is left to Catalyst.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow.compute as pc

from headrace.plan.expression import Expression
from headrace.plan.native.like import quoted
from headrace.plan.native.rule import Datum, Rows, Rule, literal_text

_BREAKS = r"\n\r\x{85}\x{2028}\x{2029}"
_END = rf"(?:\r\n|[{_BREAKS}])?\z"
_LETTERS = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\x{20}\t\n\x{b}\f\r"}
_ESCAPED = frozenset(r".\-/+*?()[]{}|^$")
_PLAIN = frozenset(" _-,:;@%&=~<>/\"'!#")  # stand for themselves outside of brackets
_IN_BRACKETS = _PLAIN - {"&", "-"} | frozenset(".+*?()$|{}")
_COUNT = re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}")
_RANGE = re.compile(r"[0-9]-[0-9]|[a-z]-[a-z]|[A-Z]-[A-Z]")


class _NotVetted(Exception):
    """Something in a pattern that is left to Catalyst."""


@lru_cache(maxsize=256)
def re2(pattern: str | None) -> str | None:
    """The regular expression for RE2; None where only Spark knows.

    >>> re2("^a[0-9]+")
    '\\\\Aa[0-9]+'
    >>> re2("a(?=b)") is None
    True
    """
    if not pattern:
        return None
    try:
        return _Reader(pattern).read()
    except _NotVetted:
        return None


@lru_cache(maxsize=256)
def plain_text(pattern: str | None) -> str | None:
    r"""The one text that a regular expression stands for; None if there is not just one.

    >>> plain_text(r"\|"), plain_text(", "), plain_text("a|b")
    ('|', ', ', None)
    """
    out, at = "", 0
    while pattern and at < len(pattern):
        escaped = pattern[at] == "\\" and pattern[at + 1 : at + 2] in _ESCAPED
        if not escaped and not _is_literal(pattern[at]):
            return None
        out += pattern[at + escaped]
        at += 1 + escaped
    return out or None


def _is_literal(character: str) -> bool:
    if character.isascii():
        return character.isalnum() or character in _PLAIN
    return character.isprintable() and character < "\ud800"


class _Reader:
    """Reads a pattern from the first character to the last."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.breaks = False  # whether something may match a line break

    def read(self) -> str:
        start = self._skip("^")
        ends = self.pattern.endswith("$") and not self.pattern.endswith("\\$") and len(self.pattern) > 1
        self.pattern = self.pattern[:-1] if ends else self.pattern
        branches = self._branches()
        if self.at < len(self.pattern) or (len(branches) > 1 and (start or ends)):
            raise _NotVetted
        if ends and self.breaks:  # Java never ends between the two characters of a line break
            raise _NotVetted
        return (r"\A" if start else "") + "|".join(branches) + (_END if ends else "")

    def _branches(self) -> list[str]:
        branches = [self._sequence()]
        while self._skip("|"):
            branches.append(self._sequence())
        return branches

    def _sequence(self) -> str:
        out = ""
        while self.at < len(self.pattern) and self._next() not in "|)":
            out += self._atom() + self._times()
        if not out:
            raise _NotVetted
        return out

    def _atom(self) -> str:
        character = self._taken()
        if character == ".":
            return f"[^{_BREAKS}]"
        if character == "(":
            if self._skip("?") and not self._skip(":"):
                raise _NotVetted
            inside = "|".join(self._branches())
            if not self._skip(")"):
                raise _NotVetted
            return f"(?:{inside})"
        if character == "[":
            return self._brackets()
        if character == "\\":
            return self._escape()
        if not _is_literal(character):
            raise _NotVetted
        return quoted(character)

    def _escape(self) -> str:
        character = self._taken()
        if character.lower() in _LETTERS:
            self.breaks |= character not in "dw"
            return f"[{'^' if character.isupper() else ''}{_LETTERS[character.lower()]}]"
        if character not in _ESCAPED:
            raise _NotVetted
        return quoted(character)

    def _brackets(self) -> str:
        none_of = self._skip("^")
        self.breaks |= none_of
        out = quoted("-") if self._skip("-") else ""
        while not self._skip("]"):
            out += self._member()
        if not out:
            raise _NotVetted
        return f"[{'^' if none_of else ''}{out}]"

    def _member(self) -> str:
        found = _RANGE.match(self.pattern, self.at)
        character = self._taken()
        if found:
            if found[0][0] > found[0][2]:
                raise _NotVetted
            self.at = found.end()
            member = found[0]
        elif character == "\\":
            escaped = self._taken()
            if escaped not in _ESCAPED and escaped not in _LETTERS:
                raise _NotVetted
            self.breaks |= escaped == "s"
            member = _LETTERS.get(escaped) or quoted(escaped)
        elif (character.isascii() and character.isalnum()) or character in _IN_BRACKETS:
            member = quoted(character)
        else:
            raise _NotVetted
        if self.pattern[self.at : self.at + 1] == "-":  # it stands for itself only at the end
            if self.pattern[self.at + 1 : self.at + 2] != "]":
                raise _NotVetted
            self.at += 1
            member += quoted("-")
        return member

    def _times(self) -> str:
        found = _COUNT.match(self.pattern, self.at)
        if found:
            if found[3] and int(found[1]) > int(found[3]):
                raise _NotVetted
            self.at = found.end()
            times = found[0]
        elif self.at < len(self.pattern) and self._next() in "*+?":
            times = self._taken()
        else:
            return ""
        self._skip("?")  # whether few or many are preferred does not matter
        if self.at < len(self.pattern) and self._next() in "*+?{":
            raise _NotVetted
        return times

    def _next(self) -> str:
        return self.pattern[self.at]

    def _taken(self) -> str:
        if self.at >= len(self.pattern):
            raise _NotVetted
        self.at += 1
        return self.pattern[self.at - 1]

    def _skip(self, character: str) -> bool:
        found = self.pattern[self.at : self.at + 1] == character
        self.at += found
        return found


def _accepts(node: Expression) -> bool:
    return node.args[0].type.kind == "string" and re2(literal_text(node.args[1])) is not None


def _rlike(node: Expression, rows: Rows) -> Datum:
    return pc.match_substring_regex(rows.value(node.args[0]), re2(literal_text(node.args[1])))


RULES = {"RLike": Rule(_accepts, _rlike)}
