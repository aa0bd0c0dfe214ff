"""Where the compound commands of bash begin and end, by tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from presim.composition.launch_scripts.bash_tokens import Token
from presim.errors import InputError

ENDS = {"if": "fi", "case": "esac", "for": "done", "while": "done", "until": "done"}


def function_name(tokens: Sequence[Token], start: int) -> str | None:
    """The function that a definition at a position names; None: there is no definition."""
    texts = [token.text for token in tokens[start : start + 4]]
    if texts[:1] == ["function"] and len(texts) > 1:
        return texts[1]
    return texts[0] if texts[1:3] == ["(", ")"] and not tokens[start].is_operator else None


def brace_end(tokens: Sequence[Token], start: int) -> int:
    """Position of the brace that closes the one at ``start``.

    Raises:
        InputError: there is none.
    """
    depth = 0
    for position in range(start, len(tokens)):
        depth += (tokens[position].text == "{") - (tokens[position].text == "}")
        if not depth:
            return position
    raise InputError("the script has a function that does not end; correct it")


def end_of(tokens: Sequence[Token], start: int) -> int:
    """Position of the word that ends the compound command at ``start``.

    Words such as ``done`` count only where a command begins.

    Raises:
        InputError: there is none.
    """
    depth, begins = 0, True
    for position in range(start, len(tokens)):
        token = tokens[position]
        if begins and not token.is_operator:
            depth += (token.text in ENDS) - (token.text in ENDS.values())
            if not depth:
                return position
        begins = token.is_operator or token.text in ("then", "do", "else", "{")
    raise InputError(f"the script has an {tokens[start].text!r} that does not end; correct it")


def branches_of(body: Sequence[Token]) -> list[tuple[str, Sequence[Token], Sequence[Token]]]:
    """Each branch of an ``if``: its keyword, condition and commands."""
    cuts, depth, begins = [("if", -1)], 0, True
    for position, token in enumerate(body):
        if begins and not token.is_operator:
            depth += (token.text in ENDS) - (token.text in ENDS.values())
            if not depth and token.text in ("elif", "then", "else"):
                cuts.append((token.text, position))
        begins = token.is_operator or token.text in ("then", "do", "else", "elif", "{")
    cuts.append(("", len(body)))
    branches: list[tuple[str, Sequence[Token], Sequence[Token]]] = []
    for (keyword, start), (following, end) in itertools.pairwise(cuts):
        if keyword == "then":
            branches[-1] = (*branches[-1][:2], body[start + 1 : end])
        elif keyword == "else":
            branches.append((keyword, (), body[start + 1 : end]))
        elif following:
            branches.append((keyword, body[start + 1 : end], ()))
    return branches
