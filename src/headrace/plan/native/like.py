"""LIKE patterns, and plain texts, as regular expressions that RE2 searches for.

What matters is speed: RE2 finds the first text of a pattern with a vectorised scan, at a tenth of a microsecond
per string, faster than Arrow's own search for a text. So a `%` at either end becomes the lack of an anchor, never a
`.*` that would have to be walked through.
"""

from __future__ import annotations

from functools import lru_cache

_ANY_NUMBER = ".*"


@lru_cache(maxsize=256)
def like_regex(pattern: str | None, escape: object) -> str | None:
    """The regular expression to search for; None where Spark would refuse the pattern.

    >>> like_regex("%special%requests%", "\\\\")
    '(?s)special.*requests'
    >>> like_regex("a_", "\\\\")
    '(?s)\\\\Aa.\\\\z'
    """
    parts = _parts(pattern, escape) if pattern is not None else None
    if parts is None:
        return None
    start = "" if parts[:1] == [_ANY_NUMBER] else r"\A"
    end = "" if parts[-1:] == [_ANY_NUMBER] else r"\z"
    while parts[:1] == [_ANY_NUMBER]:
        del parts[0]
    while parts[-1:] == [_ANY_NUMBER]:
        del parts[-1]
    return f"(?s){start}{''.join(parts)}{end}"


def _parts(pattern: str, escape: object) -> list[str] | None:
    parts, characters = [], iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("_", "%", escape):
                return None
            parts.append(quoted(escaped))
        elif character == "%":
            parts.append(_ANY_NUMBER)
        else:
            parts.append("." if character == "_" else quoted(character))
    return parts


def quoted(text: str) -> str:
    """The regular expression of a text.

    >>> quoted("a.é")
    'a\\\\x{2e}é'
    """
    return "".join(c if not c.isascii() or c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)
