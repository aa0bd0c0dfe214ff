"""BERT or T5 as Megatron-LM pretrains them: ``megatron_gpt.py`` with another model, other batches and another loss.

Takes the options of ``megatron_gpt.py`` besides its own; T5's ``--layers`` and ``--sequence`` are those of its encoder.
"""

from __future__ import annotations

import argparse
import copy
import sys
import types

import torch
import torch.nn.functional as F


def install_masked_softmax() -> None:
    """Apex's softmax with any mask: scaling, mask and softmax are one kernel, and so is their backward.

    ``megatron_layers`` has the causal one; what is installed first stays.
    """

    @torch.compile(dynamic=False)
    def forward(scores: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.softmax((scores * scale).masked_fill(mask, -10000.0), -1)

    @torch.compile(dynamic=False)
    def backward(gradients: torch.Tensor, results: torch.Tensor, scale: float) -> torch.Tensor:
        product = gradients.float() * results
        return gradients.copy_((product - results * product.sum(-1, keepdim=True)) * scale)

    module = types.ModuleType("scaled_masked_softmax_cuda")
    module.get_batch_per_block = lambda *sizes: 1
    module.forward = lambda scores, mask, scale: forward(scores, mask, float(scale))
    module.backward = lambda gradients, results, scale: backward(gradients, results, float(scale))
    sys.modules.setdefault(module.__name__, module)


install_masked_softmax()

import megatron_gpt  # noqa: E402 - it looks for the softmax when it is imported
import megatron_layers  # noqa: E402
from megatron.core.datasets.t5_dataset import T5MaskedWordPieceDataset  # noqa: E402
from megatron.core.models.bert import bert_layer_specs  # noqa: E402
from megatron.core.models.bert.bert_model import BertModel  # noqa: E402
from megatron.core.models.T5 import T5Model, t5_spec  # noqa: E402
from megatron.core.transformer.enums import AttnBackend  # noqa: E402


def parse() -> argparse.Namespace:
    """This recipe's own options; the others are left to ``megatron_gpt``."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--family", choices=("bert", "t5"), required=True)
    parser.add_argument("--decoder-layers", type=int, default=0, help="T5's")
    parser.add_argument("--decoder-sequence", type=int, default=0, help="T5's")
    own, others = parser.parse_known_args()
    sys.argv[1:] = others
    return own


def bert(config, engine: str, **common) -> BertModel:
    """With its head that says which sentence comes first, and one embedding for each of two sentences."""
    if engine == "te":
        spec = bert_layer_specs.get_bert_layer_with_transformer_engine_spec()
    else:
        spec = copy.deepcopy(bert_layer_specs.bert_layer_local_spec)
        spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = megatron_layers.Norm
        config.attention_backend = AttnBackend.local
    return BertModel(config, 2, spec, **common)


def t5(config, engine: str, decoder_layers: int, **common) -> T5Model:
    """Encoder and decoder on the same rank: Megatron has no pipeline of them."""
    encoder, decoder = copy.deepcopy(config), config
    decoder.num_layers = decoder_layers
    if engine == "te":
        specs = (
            t5_spec.get_t5_encoder_with_transformer_engine_block_spec(encoder.num_layers),
            t5_spec.get_t5_decoder_with_transformer_engine_block_spec(decoder_layers),
        )
    else:
        specs = (
            t5_spec.get_t5_encoder_with_local_block_spec(encoder.num_layers),
            t5_spec.get_t5_decoder_with_local_block_spec(decoder_layers),
        )
    return T5Model(decoder, encoder, *specs, **common)


def bert_step(o, batches, model):
    """Words that are left out are guessed, and which of two sentences comes first."""
    tokens = next(batches)
    ones = torch.ones_like(tokens)
    output = model(tokens, ones, tokentype_ids=torch.zeros_like(tokens), lm_labels=tokens)

    def loss(output):
        words, order = output
        first = torch.zeros(tokens.shape[0], dtype=torch.long, device="cuda")
        total = _mean(words, ones) + F.cross_entropy(order.view(-1, 2).float(), first, ignore_index=-1)
        return total, {"loss": total.detach()}

    return output, loss


def t5_step(own, o, batches, model):
    """A decoder that reads what the encoder made of a longer text."""
    tokens = next(batches)
    answer = tokens[:, : own.decoder_sequence].contiguous()
    masks = T5MaskedWordPieceDataset.config_attention_mask(
        *(tokens, answer, tokens < 0, answer < 0), use_local=o.engine == "local"
    )
    output = model(tokens, answer, *masks, lm_labels=answer)

    def loss(output):
        total = _mean(output, torch.ones_like(answer))
        return total, {"loss": total.detach()}

    return output, loss


def _mean(losses: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    mask = mask.float()
    return torch.sum(losses.float().view(-1) * mask.view(-1)) / mask.sum()


def main() -> None:
    """Trains as ``megatron_gpt`` does."""
    own = parse()
    engine = megatron_gpt.parse().engine

    def build(config, spec, mtp_block_spec=None, **common):
        if own.family == "bert":
            return bert(config, engine, **common)
        return t5(config, engine, own.decoder_layers, **common)

    megatron_gpt.GPTModel = build
    megatron_gpt.forward_step = bert_step if own.family == "bert" else lambda *given: t5_step(own, *given)
    megatron_gpt.main()


if __name__ == "__main__":
    main()
