"""A place in the tokens of one statement, and the few moves a hand-written parser makes from it.

Every move that can fail raises an error that points at the token it stumbled over, so no parser has to.
"""

from __future__ import annotations

from headrace.errors import PipelineError
from headrace.sql.lexer import Kind, Token, error_at


class Cursor:
    """Walks over the tokens of one statement, whose last token is its `;` or the end of the file."""

    def __init__(self, text: str, file: str, statement: list[Token]) -> None:
        self.text = text
        self.file = file
        self._tokens = statement
        self._at = 0

    @property
    def now(self) -> Token:
        """The token that is read next."""
        return self._tokens[self._at]

    @property
    def last(self) -> Token:
        """The token that was read last."""
        return self._tokens[max(self._at - 1, 0)]

    @property
    def end(self) -> Token:
        """The token that ends the statement."""
        return self._tokens[-1]

    def take(self) -> Token:
        """Read one token; the end is never passed."""
        token = self.now
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def take_word(self, *words: str) -> bool:
        """Read the next token if it is one of these keywords."""
        return self.now.is_word(*words) and bool(self.take())

    def take_words(self, *words: str) -> bool:
        """Read these keywords if they all come next; the first without the rest is an error."""
        if not self.take_word(words[0]):
            return False
        for word in words[1:]:
            if not self.take_word(word):
                raise self.error(f"expected {word}", f"Write {' '.join(words)}.")
        return True

    def take_symbol(self, symbol: str) -> bool:
        """Read the next token if it is this symbol."""
        return self.now.is_symbol(symbol) and bool(self.take())

    def expect(self, symbol: str, meaning: str) -> None:
        """Read this symbol; if another token comes next, the error says to write `meaning`."""
        if not self.take_symbol(symbol):
            raise self.error(f"expected {symbol}", f"Write {meaning}.")

    def expect_end(self, alternatives: str) -> None:
        """Make sure that the statement ends here."""
        if self.now is not self.end:
            raise self.error(
                f"did not expect {self.now.written}", f"Write {alternatives} here; statements end with a semicolon."
            )

    def identifier(self, meaning: str) -> Token:
        """Read a plain or backquoted name."""
        token = self.now
        if token.kind is Kind.NUMBER or not (token.kind in (Kind.WORD, Kind.NAME) and token.name):
            raise self.error(
                f"expected {meaning}", "Put a name that is not made of letters, digits and _ in `backquotes`."
            )
        self.take()
        if self.now.is_symbol("."):
            raise self.error("names have one part in a pipeline", f"Write {token.written} without a qualifier.")
        return token

    def names(self, meaning: str) -> tuple[str, ...]:
        """Read a list of names in parentheses."""
        self.expect("(", f"{meaning} in parentheses")
        found = [self.identifier(meaning).name]
        while self.take_symbol(","):
            found.append(self.identifier(meaning).name)
        self.expect(")", f", or ) after {meaning}")
        return tuple(found)

    def error(self, what: str, way_out: str, token: Token | None = None) -> PipelineError:
        """Return an error that points at `token`, or at the next one."""
        return error_at(self.text, (token or self.now).start, self.file, what, way_out)
