"""Split the text of a bash script into words and operators; quotes and expansions stay in the words."""

from __future__ import annotations

import dataclasses
import re

from presim.errors import InputError

_OPERATORS = ("&&", "||", ";;", "<<<", "<<-", "<<", ">>", "2>&1", "&>", ">&", "|", "&", ";", "(", ")", "<", ">", "\n")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")
_HEREDOC = re.compile(r"(\\?)(['\"]?)([\w-]+)\2")
_CLOSES = {"(": ")", "{": "}"}


@dataclasses.dataclass(frozen=True)
class Token:
    """A word with its quotes, an operator, or an array's assignment with its words."""

    text: str
    is_operator: bool = False
    items: tuple[str, ...] | None = None  # of an array


def tokens_of(text: str) -> list[Token]:
    """The tokens of a script; a here-document follows its ``<<`` as one word.

    Raises:
        InputError: a quote or a bracket is not closed.
    """
    return _Scanner(text).tokens()


def _with_tests_as_words(tokens: list[Token]) -> list[Token]:
    """The tokens with the operators between ``[[`` and ``]]`` as words of the test."""
    words, is_test = [], False
    for token in tokens:
        is_test = (is_test or token.text == "[[") and token.text not in ("]]", "\n")
        words.append(Token(token.text) if is_test and token.is_operator else token)
    return words


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\\\n", " ")
        self.at = 0
        self.documents: list[tuple[int, str, bool]] = []  # token to replace, delimiter, is literal

    def tokens(self) -> list[Token]:
        tokens_so_far: list[Token] = []
        while (token := self._next()) is not None:
            tokens_so_far.append(token)
            if token.text in ("<<", "<<-") and token.is_operator:
                self._announce_document(tokens_so_far)
            elif token.text == "\n" and token.is_operator:
                for position, delimiter, is_literal in self.documents:
                    tokens_so_far[position] = Token(self._document(delimiter, is_literal))
                self.documents = []
        return _with_tests_as_words(tokens_so_far)

    def _next(self) -> Token | None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at >= len(self.text):
            return None
        if self.text[self.at] == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            return self._next()
        if match := _ARRAY.match(self.text, self.at):
            self.at = match.end()
            return Token(match[0][:-1], items=self._items())
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.at):
                self.at += len(operator)
                return Token(operator, is_operator=True)
        return Token(self._word())

    def _items(self) -> tuple[str, ...]:
        items: list[str] = []
        while (token := self._next()) is not None:
            if token.is_operator and token.text == ")":
                return tuple(items)
            if not token.is_operator:
                items.append(token.text)
        raise InputError("the script has an array whose bracket is not closed; correct it")

    def _word(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;|&()<>":
            self._skip()
        return self.text[start : self.at]

    def _skip(self) -> None:
        """Go past a character, a quoted text or an expansion."""
        letter = self.text[self.at]
        if letter == "\\":
            self.at += 2
        elif letter in "'`\0":
            self._past(letter)
        elif letter == '"':
            self.at += 1
            while self.at < len(self.text) and self.text[self.at] != '"':
                if self.text[self.at] == "'":
                    self.at += 1
                else:
                    self._skip()
            self._closed()
        elif letter == "$" and self.text[self.at + 1 : self.at + 2] in _CLOSES:
            self.at += 1
            self._bracket()
        else:
            self.at += 1

    def _bracket(self) -> None:
        opening = self.text[self.at]
        closing, depth = _CLOSES[opening], 0
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in (opening, closing):
                depth += 1 if letter == opening else -1
                self.at += 1
                if not depth:
                    return
            else:
                self._skip()
        self._closed()

    def _past(self, quote: str) -> None:
        self.at = self.text.find(quote, self.at + 1)
        if self.at < 0:
            self.at = len(self.text)
        self._closed()

    def _closed(self) -> None:
        if self.at >= len(self.text):
            raise InputError("the script has a quote or bracket that is not closed; correct it")
        self.at += 1

    def _announce_document(self, tokens_so_far: list[Token]) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        match = _HEREDOC.match(self.text, self.at)
        if match is None:
            return
        self.at = match.end()
        self.documents.append((len(tokens_so_far), match[3], bool(match[1] or match[2])))
        tokens_so_far.append(Token(""))

    def _document(self, delimiter: str, is_literal: bool) -> str:
        lines: list[str] = []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            line = self.text[self.at : end if end >= 0 else len(self.text)]
            self.at += len(line) + 1
            if line.strip() == delimiter:
                break
            lines.append(line)
        text = "\n".join(lines)
        return "'" + text.replace("'", "'\\''") + "'" if is_literal else '"' + text.replace('"', '\\"') + '"'
