"""BERT or T5 as Megatron-LM's own tests train them: ``megatron_tests.py`` with another model, batches and losses.

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
import megatron_tests  # noqa: E402
import torch.distributed as dist  # noqa: E402
from megatron.core import parallel_state, tensor_parallel  # noqa: E402
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


_READ = {  # of each text, besides its words: a number for every word
    "bert": ("types", "labels", "loss_mask", "padding_mask"),
    "t5": ("enc_mask",),
}
_ANSWERED = ("text_dec", "labels", "loss_mask", "dec_mask")  # T5's, for every word of an answer


def texts(own, o):
    """Without end: a micro-batch as the data loader gives it, on the CPU."""
    shapes = dict.fromkeys(("text", *_READ[own.family]), (o.batch, o.sequence))
    if own.family == "t5":
        shapes |= dict.fromkeys(_ANSWERED, (o.batch, own.decoder_sequence))
    else:
        shapes["is_random"] = (o.batch,)
    batch = {name: torch.ones(shape, dtype=torch.int64).pin_memory() for name, shape in shapes.items()}
    while True:
        yield batch


def shared(batches) -> dict[str, torch.Tensor]:
    """The next micro-batch on the device, which ranks of tensor parallelism have from the first of them."""
    batch = next(batches)
    return tensor_parallel.broadcast_data(list(batch), batch, torch.int64)


def bert_step(o, batches, model, return_schedule_plan=False):
    """Words that are left out are guessed, and which of two sentences comes first."""
    batch = shared(batches)
    mask = batch["loss_mask"].float()
    output = model(batch["text"], batch["padding_mask"], tokentype_ids=batch["types"], lm_labels=batch["labels"])

    def loss(output):
        words, order = output
        of_words = torch.sum(words.float().view(-1) * mask.view(-1)) / mask.sum()
        of_order = F.cross_entropy(order.view(-1, 2).float(), batch["is_random"].view(-1), ignore_index=-1).float()
        return of_words + of_order, {"loss": _averaged(of_words, of_order)}

    return output, loss


def _averaged(*losses: torch.Tensor) -> torch.Tensor:
    """Over the replicas, in every micro-batch: so Megatron-LM does with BERT's."""
    together = torch.cat([each.clone().detach().view(1) for each in losses])
    group = parallel_state.get_data_parallel_group()
    dist.all_reduce(together, group=group)
    return together / dist.get_world_size(group=group)


def t5_step(o, batches, model, return_schedule_plan=False):
    """A decoder that reads what the encoder made of a longer text."""
    batch = shared(batches)
    loss_mask = batch["loss_mask"].float()
    masks = T5MaskedWordPieceDataset.config_attention_mask(
        *(batch["text"], batch["text_dec"], batch["enc_mask"] < 0.5, batch["dec_mask"] < 0.5),
        use_local=o.engine == "local",
    )
    output = model(batch["text"], batch["text_dec"], *masks, lm_labels=batch["labels"])
    return output, lambda output: megatron_tests.loss(output.float() * loss_mask)


def main() -> None:
    """Trains as ``megatron_tests`` does."""
    own = parse()
    engine = megatron_gpt.parse().engine

    def build(config, spec, mtp_block_spec=None, **common):
        if own.family == "bert":
            return bert(config, engine, **common)
        return t5(config, engine, own.decoder_layers, **common)

    megatron_gpt.GPTModel = build
    megatron_tests.forward_step = bert_step if own.family == "bert" else t5_step
    megatron_tests.main(lambda o: texts(own, o))


if __name__ == "__main__":
    main()
