"""Speculative decoding: the drafter, its cost per step, and the number of accepted tokens.

A decode then processes its last token and `tokens` drafted ones in one step, and outputs one token more than it
accepts. Each drafted token is accepted with the same probability if all tokens before it were, as in Leviathan et al.
(2023). The probability depends on model, drafter and text, and is an input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from presim.composition.models.decoder_layers import Dense, Experts, Layer, Weight
from presim.composition.models.description import Model
from presim.errors import InputError

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
        return sum(self.acceptance**position for position in range(self.tokens + 1))

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
    attends = [kind for kind in model.order if model.kinds[kind].cached]
    if not attends:
        raise InputError(f"{model.name} has no attention, and so no drafter; leave out --speculative {drafting.method}")
    last = model.kinds[attends[-1]]
    if drafting.method == "mtp" and last.feed_forwards:
        layer = last
    else:
        width = _dense_width(model)
        layer = with_dense(Layer(last.cached[:1], (), of_part(last.weights, "mixer")), width, model.hidden)
    return msgspec.structs.replace(model, kinds=(layer,), order=(0,), outside=_ends(model))


def _ends(model: Model) -> tuple[Weight, ...]:
    return tuple(weight for weight in model.outside if weight.part in ("embedding", "head"))


def of_part(weights: Iterable[Weight], part: str) -> tuple[Weight, ...]:
    """The weights of a part."""
    return tuple(weight for weight in weights if weight.part == part)


def _dense_width(model: Model) -> int:
    """Width of a dense feed-forward of the model, or of the experts that a token uses."""
    parts = [part for kind in model.kinds for part in kind.feed_forwards]
    dense = [part.width for part in parts if isinstance(part, Dense) and not part.shared]
    used = [part.width * part.chosen for part in parts if isinstance(part, Experts)]
    return max(dense or used or [4 * model.hidden])


def with_dense(layer: Layer, width: int, hidden: int) -> Layer:
    """The layer with a dense feed-forward of three matrices."""
    weight = Weight("mlp.weight", (3, width, hidden), "dense")
    return msgspec.structs.replace(layer, feed_forwards=(Dense(width),), weights=(*layer.weights, weight))


def with_passes(
    token_ns: Floats, head_ns: Floats, draft_ns: Floats, draft_head_ns: Floats, tokens: int
) -> list[Floats]:
    """Add the drafter's passes to the tables of linear layers by tokens and of logits by rows.

    Its first pass takes all tokens of the step, later passes one token per sequence. The number of sequences is
    estimated from the rows, which undercounts steps with only prompts.
    """
    sequences = -(-np.arange(len(head_ns)) // (1 + tokens))
    draft_rows = np.minimum(sequences, len(draft_head_ns) - 1)
    passes = tokens * draft_head_ns[draft_rows] + (tokens - 1) * draft_ns[np.minimum(sequences, len(draft_ns) - 1)]
    return [token_ns + draft_ns, head_ns + np.where(sequences > 0, passes, 0.0)]
