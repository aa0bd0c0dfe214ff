"""Speculative decoding: what proposes tokens, what that costs a step, how many of them the model accepts.

A decode then processes its last token and `tokens` proposed ones in one step, and gives out one more token than it
accepts. Each proposed token is accepted with the same probability while all before it were, as Leviathan et al. (2023)
have it; the probability depends on model, drafter and text, and is an input.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.model import Model

Method = Literal["mtp", "eagle", "draft", "ngram"]
Floats = NDArray[np.float64]

# Where the user says none. MTP: DeepSeek-V3's report (arXiv 2412.19437, 5.4.3) has 85 to 90 % for the second token.
# The others are round estimates: what is published spreads from 30 to 90 % by text.
ACCEPTANCE: dict[Method, float] = {"mtp": 0.85, "eagle": 0.7, "draft": 0.7, "ngram": 0.3}
_MOST = 16


@dataclasses.dataclass(frozen=True)
class Drafting:
    """Who proposes how many tokens, and how likely one is accepted."""

    method: Method
    tokens: int = 1
    acceptance: float = 0.7
    model: Model | None = None  # of the method "draft"

    def __post_init__(self) -> None:
        """Refuse what no engine would do."""
        if not 1 <= self.tokens <= _MOST:
            raise InputError(f"{self.tokens} draft tokens are not between 1 and {_MOST}; correct --draft-tokens")
        if not 0 <= self.acceptance <= 1:
            raise InputError(f"an acceptance of {self.acceptance} is no probability; correct --acceptance")
        if (self.method == "draft") != (self.model is not None):
            raise InputError("a draft model goes with --speculative draft, and only with it; correct --draft-model")

    @property
    def given_out(self) -> float:
        """Tokens that a decode gives out in a step, on average."""
        return sum(self.acceptance**place for place in range(self.tokens + 1))

    @property
    def text(self) -> str:
        """In a sentence."""
        return (
            f"Speculative decoding by {self.method}: {self.tokens} draft tokens, each accepted with probability "
            f"{self.acceptance:g} (an assumption: give --acceptance), {self.given_out:.2f} tokens a step."
        )


def drafting_of(method: str | None, tokens: int, acceptance: float | None, model: Model | None) -> Drafting | None:
    """From what a user says; None where nothing is drafted."""
    if method is None:
        return None
    if method not in get_args(Method):
        raise InputError(f"no drafting is called {method!r}; there are {', '.join(get_args(Method))}")
    likely = ACCEPTANCE[method] if acceptance is None else acceptance  # type: ignore[index]
    return Drafting(method, tokens, likely, model)  # type: ignore[arg-type]


def drafter(model: Model, drafting: Drafting) -> Model | None:
    """What proposes, as a model: MTP's module is a layer like the model's last, EAGLE's head a dense one."""
    if drafting.method == "ngram":
        return None
    if drafting.model is not None:
        return drafting.model
    experts = model.experts
    if drafting.method == "mtp" and experts is not None:
        return dataclasses.replace(model, layers=1, experts=dataclasses.replace(experts, dense_layers=0))
    return dataclasses.replace(model, layers=1, experts=None)


def with_passes(
    token_ns: Floats, head_ns: Floats, draft_ns: Floats, draft_head_ns: Floats, tokens: int
) -> list[Floats]:
    """Tables of linear layers by tokens and of logits by rows, the drafter's passes within.

    Its first pass takes all tokens of the step, the others one of each sequence. Sequences are the rows by what each
    has: a step of prompts alone counts fewer than it has.
    """
    sequences = -(-np.arange(len(head_ns)) // (1 + tokens))
    each = np.minimum(sequences, len(draft_head_ns) - 1)
    passes = tokens * draft_head_ns[each] + (tokens - 1) * draft_ns[np.minimum(sequences, len(draft_ns) - 1)]
    return [token_ns + draft_ns, head_ns + np.where(sequences > 0, passes, 0.0)]
