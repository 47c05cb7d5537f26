"""Cut SQL text into tokens by Spark's own lexical rules, keeping where each one stands.

A pipeline file is split at its semicolons, except those inside a string, a quoted name or a comment. Only a lexer that
agrees with Spark on where strings, names and comments end can tell the two apart. Positions let an error point at the
text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from headrace.errors import PipelineError


class Kind(Enum):
    """What a token is."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True)
class Token:
    """A piece of the text: `text[start:end]`, as it is written."""

    kind: Kind
    written: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Tell whether this is one of these keywords, in any case."""
        return self.kind is Kind.WORD and self.written.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        """Tell whether this is one of these symbols."""
        return self.kind is Kind.SYMBOL and self.written in symbols

    @property
    def name(self) -> str:
        """The identifier that this token stands for."""
        return self.written[1:-1].replace("``", "`") if self.kind is Kind.NAME else self.written

    @property
    def string(self) -> str:
        """The characters that this string literal stands for."""
        if self.written[0] in "rR":
            return self.written[2:-1]
        quote, body = self.written[0], self.written[1:-1]
        return re.sub(r"\\(.)|" + quote * 2, lambda match: _unescaped(match[1], quote), body, flags=re.DOTALL)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}

_PATTERN = re.compile(
    r"""
    (?P<space>    \s+ | --(?:\\\n|[^\r\n])* )
  | (?P<comment>  /\* )
  | (?P<string>   [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
  | (?P<name>     `(?:[^`]|``)*` )
  | (?P<number>   \d+(?:\.\d+)? )
  | (?P<word>     \w+ )
  | (?P<open>     ['"`] )
  | (?P<symbol>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def tokens(text: str, file: str) -> list[Token]:
    """Return the tokens of `text` without blanks and comments, closed by one of kind END.

    >>> [token.written for token in tokens("SELECT ';' -- a; comment", "example.sql")]
    ['SELECT', "';'", '']
    """
    found = []
    position = 0
    while position < len(text):
        match = _PATTERN.match(text, position)
        assert match is not None, "the last alternative matches any character"
        kind = match.lastgroup
        if kind == "comment":
            position = _comment_end(text, position, file)
            continue
        if kind == "open":
            what = "name" if match[0] == "`" else "string"
            raise error_at(
                text,
                position,
                file,
                f"this {what} is never closed",
                f"Close it with {match[0]}, or double a {match[0]} inside it.",
            )
        if kind != "space":
            found.append(Token(Kind[str(kind).upper()], match[0], position, match.end()))
        position = match.end()
    return [*found, Token(Kind.END, "", len(text), len(text))]


def error_at(text: str, position: int, file: str, what: str, way_out: str) -> PipelineError:
    """Return an error that shows the line of `position` with a caret under it."""
    position = min(position, len(text.rstrip()))
    line = line_of(text, position)
    start = text.rfind("\n", 0, position) + 1
    shown = text[start:].split("\n", 1)[0].rstrip("\r")
    # Tabs are kept in the margin, so that the caret stands right whatever their width is.
    margin = re.sub(r"[^\t]", " ", text[start:position])
    gutter = f"{line} | "
    return PipelineError(
        f"{file}, line {line}: {what}\n  {gutter}{shown}\n  {' ' * len(gutter)}{margin}^",
        way_out=way_out,
    )


def line_of(text: str, position: int) -> int:
    """Return the line number, from 1, of a position in the text."""
    return text.count("\n", 0, position) + 1


def _comment_end(text: str, start: int, file: str) -> int:
    # Comments nest in Spark.
    depth, position = 1, start + 2
    while depth:
        edge = _COMMENT_EDGE.search(text, position)
        if edge is None:
            raise error_at(text, start, file, "this comment is never closed", "Close it with */ (comments nest).")
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position


def _unescaped(escaped: str | None, quote: str) -> str:
    return quote if escaped is None else _ESCAPES.get(escaped, escaped)
