"""Nemotron 3 Super and other hybrids that predict further tokens: ``megatron_hybrid.py`` with predictors.

Megatron-core 0.16 has neither these predictors nor NVFP4 in hybrids; later ones do. A predictor joins the last hidden
states with the next token's embedding, runs a stack of its own and ends in the model's output layer, which makes a loss
of each. Its products stay in bf16 (``keep_mtp_spec_in_bf16``). Takes the options of ``megatron_hybrid.py`` besides its
own; runs without a pipeline.
"""

from __future__ import annotations

import argparse
import copy
import sys

import megatron_hybrid
import torch
from megatron.core.extensions.transformer_engine import TEColumnParallelLinear, TENorm
from megatron.core.fp4_utils import get_fp4_context
from megatron.core.models.mamba import MambaModel
from megatron.core.tensor_parallel import (
    gather_from_tensor_model_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler
from megatron.core.transformer.spec_utils import build_module

_SHARE = 0.3  # of a predictor's loss in the whole: the releases' mtp_loss_scaling_factor


def parse() -> argparse.Namespace:
    """This recipe's own options; the others are left to ``megatron_hybrid``."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--predictor", default="*E", help="its layers, a letter each as in --pattern")
    parser.add_argument("--predictions", type=int, default=0, help="further tokens")
    parser.add_argument("--own-weights", action="store_true", help="each prediction has a predictor of its own")
    own, others = parser.parse_known_args()
    sys.argv[1:] = others
    return own


class Predictor(torch.nn.Module):
    """One further token from hidden states and the next token's embedding, both of shape [sequence, batch, hidden]."""

    def __init__(self, config, stack_spec, pattern: str, groups) -> None:
        super().__init__()
        config = copy.copy(config)
        config.num_layers, config.fp8, config.fp8_param, config.fp4 = len(pattern), None, False, None
        self.config = config
        norm = {"config": config, "hidden_size": config.hidden_size, "eps": config.layernorm_epsilon}
        self.enorm, self.hnorm = TENorm(**norm), TENorm(**norm)
        self.eh_proj = TEColumnParallelLinear(
            2 * config.hidden_size,
            config.hidden_size,
            config=config,
            init_method=config.init_method,
            gather_output=False,
            bias=False,
            skip_bias_add=False,
            is_expert=False,
        )
        self.stack = build_module(
            stack_spec, config, hybrid_override_pattern=pattern, dtype=config.params_dtype, pg_collection=groups
        )

    def forward(self, hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """The hidden states of the further token."""
        joined, _ = self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden)), -1))
        joined = gather_from_tensor_model_parallel_region(joined)
        if self.config.sequence_parallel:
            joined = scatter_to_sequence_parallel_region(joined)
        return self.stack(hidden_states=joined, attention_mask=None)


class PredictingHybrid(MambaModel):
    """A hybrid whose loss has parts for further tokens."""

    own: argparse.Namespace

    def __init__(self, config, stack_spec, **common) -> None:
        super().__init__(config, stack_spec, **common)
        if self.post_process and self.own.predictions:
            output = self._modules.pop("output_layer")  # whose weights are gathered last
            count = self.own.predictions if self.own.own_weights else 1
            parts = (config, stack_spec, self.own.predictor, self.pg_collection)
            self.predictors = torch.nn.ModuleList(Predictor(*parts) for _ in range(count))
            self.output_layer = output
        if config.fp4:
            _compute_in_fp4(self.decoder)

    def forward(self, input_ids, position_ids, attention_mask, labels=None):
        """The loss of each token, of shape [batch, sequence]."""
        embedded = self.embedding(input_ids=input_ids, position_ids=position_ids) if self.pre_process else None
        hidden = self.decoder(hidden_states=embedded, attention_mask=attention_mask)
        if not self.post_process:
            return hidden
        further, output, tokens = hidden, hidden, input_ids
        for index in range(self.own.predictions):
            tokens, labels_then = torch.roll(tokens, -1, -1), torch.roll(labels, -1 - index, -1)
            embedded = self.embedding(input_ids=tokens, position_ids=position_ids)
            further = self.predictors[min(index, len(self.predictors) - 1)](further, embedded)
            logits, _ = self.output_layer(further)
            loss = self.compute_language_model_loss(labels_then, logits)
            output = MTPLossAutoScaler.apply(output, _SHARE / self.own.predictions * loss.float().mean())
        logits, _ = self.output_layer(output)
        return self.compute_language_model_loss(labels, logits)


def _compute_in_fp4(stack: torch.nn.Module) -> None:
    """Each layer's products, but for those that the configuration leaves in bf16."""
    for layer in stack.layers:
        plain = layer.forward

        def forward(*args, plain=plain, layer=layer, **named):
            with get_fp4_context(layer.config, layer.layer_number - 1):
                return plain(*args, **named)

        layer.forward = forward


def main() -> None:
    """Trains as ``megatron_hybrid`` does."""
    PredictingHybrid.own = parse()
    megatron_hybrid.MambaModel = PredictingHybrid
    megatron_hybrid.main()


if __name__ == "__main__":
    main()
