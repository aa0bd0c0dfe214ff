"""Speculative decoding: the drafter, its cost per step, and the number of accepted tokens.

A decode then processes its last token and `tokens` drafted ones in one step, and outputs one token more than it
accepts. Each drafted token is accepted with the same probability if all tokens before it were, as in Leviathan et al.
(2023). The probability depends on model, drafter and text, and is an input.
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

# Default acceptance. MTP: DeepSeek-V3's report (arXiv 2412.19437, 5.4.3) gives 85 to 90 % for the second token. The
# others are round estimates: published values range from 30 to 90 %, depending on the text.
ACCEPTANCE: dict[Method, float] = {"mtp": 0.85, "eagle": 0.7, "draft": 0.7, "ngram": 0.3}
_MOST = 16


@dataclasses.dataclass(frozen=True)
class Drafting:
    """Drafting method, number of drafted tokens, and acceptance probability."""

    method: Method
    tokens: int = 1
    acceptance: float = 0.7
    model: Model | None = None  # draft model, for method "draft"

    def __post_init__(self) -> None:
        """Raise InputError on values that no engine accepts."""
        if not 1 <= self.tokens <= _MOST:
            raise InputError(
                f"{self.tokens} draft tokens: the number must be from 1 to {_MOST}; correct --draft-tokens"
            )
        if not 0 <= self.acceptance <= 1:
            raise InputError(f"an acceptance of {self.acceptance} is not a probability (0 to 1); correct --acceptance")
        if (self.method == "draft") != (self.model is not None):
            raise InputError(
                "--speculative draft needs --draft-model, and other methods do not accept it; correct --draft-model"
            )

    @property
    def given_out(self) -> float:
        """Mean output tokens of one decode per step."""
        return sum(self.acceptance**place for place in range(self.tokens + 1))

    @property
    def text(self) -> str:
        """In a sentence."""
        return (
            f"Speculative decoding by {self.method}: {self.tokens} draft tokens, each accepted with probability "
            f"{self.acceptance:g} (set with --acceptance), {self.given_out:.2f} tokens a step."
        )


def drafting_of(method: str | None, tokens: int, acceptance: float | None, model: Model | None) -> Drafting | None:
    """Build from user options; None without drafting."""
    if method is None:
        return None
    if method not in get_args(Method):
        raise InputError(f"no drafting method {method!r}; use one of {', '.join(get_args(Method))}")
    likely = ACCEPTANCE[method] if acceptance is None else acceptance  # type: ignore[index]
    return Drafting(method, tokens, likely, model)  # type: ignore[arg-type]


def drafter(model: Model, drafting: Drafting) -> Model | None:
    """The drafter as a model: MTP's module is a layer like the model's last one, EAGLE's head a dense layer."""
    if drafting.method == "ngram":
        return None
    if drafting.model is not None:
        return drafting.model
    experts = model.experts
    if drafting.method == "mtp" and experts is not None:
        one = dataclasses.replace(experts, dense_layers=0)
        return dataclasses.replace(model, layers=1, experts=one, recurrent=None)
    return dataclasses.replace(model, layers=1, experts=None, recurrent=None)


def with_passes(
    token_ns: Floats, head_ns: Floats, draft_ns: Floats, draft_head_ns: Floats, tokens: int
) -> list[Floats]:
    """Add the drafter's passes to the tables of linear layers by tokens and of logits by rows.

    Its first pass takes all tokens of the step, later passes one token per sequence. The number of sequences is
    estimated from the rows, which undercounts steps with only prompts.
    """
    sequences = -(-np.arange(len(head_ns)) // (1 + tokens))
    each = np.minimum(sequences, len(draft_head_ns) - 1)
    passes = tokens * draft_head_ns[each] + (tokens - 1) * draft_ns[np.minimum(sequences, len(draft_ns) - 1)]
    return [token_ns + draft_ns, head_ns + np.where(sequences > 0, passes, 0.0)]
