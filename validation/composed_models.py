"""Models that no config describes, for `presim graph`: `composed_models:megatron_llama` and others."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent / "recipes"))

MEGATRON = "--layers 8 --hidden 4096 --ffn 14336 --heads 32 --kv-heads 8 --vocab 32000 --sequence 4096 --batch 1"
_MEGATRON_PLAN = {
    "model.embedding.word_embeddings": "embedding_rowwise",
    "model.decoder.layers.*.self_attention.linear_qkv": "colwise",
    "model.decoder.layers.*.self_attention.linear_proj": "rowwise",
    "model.decoder.layers.*.mlp.linear_fc1": "colwise",
    "model.decoder.layers.*.mlp.linear_fc2": "rowwise",
    "model.output_layer": "colwise_gather_output",
}


class MegatronModel(torch.nn.Module):
    """Megatron-core's GPTModel with the loss of the recipe, on one rank of a group of one."""

    tp_plan = _MEGATRON_PLAN

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        for parameter in model.parameters():
            parameter.main_grad = torch.empty(parameter.shape, dtype=torch.float32, device="meta")
            parameter.grad_added_to_main_grad = False

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The mean loss of tokens."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
        return self.model(input_ids, positions, None, labels=input_ids).float().mean()


def megatron_llama() -> torch.nn.Module:
    """A Llama of Megatron's local layers."""
    return _megatron(MEGATRON.split())


def _megatron(words: list[str]) -> torch.nn.Module:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    for name in ("transformer_engine", "apex"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # an import fails: without a GPU they cannot be
    dist.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    torch.cuda.current_device = lambda: torch.device("meta")  # where Megatron's layers make their weights
    sys.argv = ["megatron_gpt", *words, "--accumulate", "1"]
    import megatron_gpt
    import megatron_layers
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(1, 1)
    options: argparse.Namespace = megatron_gpt.parse()
    config = megatron_gpt.configure(options)
    config.perform_initialization, config.init_model_with_meta_device = False, True
    model = megatron_gpt.GPTModel(
        config,
        megatron_layers.block_spec(config, "local", "auto", None),
        vocab_size=options.vocab,
        max_sequence_length=options.sequence,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    )
    return MegatronModel(model)


_TITAN = {"hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 128256, "layers": 4, "sequence": 131072}
_TITAN_PLAN = {
    "model.tok_embeddings": "embedding_rowwise",
    "model.layers.*.attention.w[qkv]": "colwise",
    "model.layers.*.attention.wo": "rowwise",
    "model.layers.*.feed_forward.w[13]": "colwise",
    "model.layers.*.feed_forward.w2": "rowwise",
    "model.output": "colwise_gather_output",
}


_TRAINER_PLAN = {
    **_TITAN_PLAN,
    "model.layers.*.attention.qkv_linear.wqkv": "colwise",
    "model.lm_head": "colwise_gather_output",
}


class TitanModel(torch.nn.Module):
    """The Llama of `recipes/llama_fsdp2.py`, torchtitan's plain modules, with its loss."""

    def __init__(self, model: torch.nn.Module, plan: Mapping[str, str] = _TITAN_PLAN) -> None:
        super().__init__()
        self.model, self.tp_plan = model, plan

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """The mean loss of tokens."""
        logits = self.model(input_ids)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), input_ids.flatten(0, 1))


def titan_llama() -> torch.nn.Module:
    """A Llama of four layers."""
    import llama_fsdp2

    return TitanModel(llama_fsdp2.Llama(argparse.Namespace(**_TITAN)))


def titan_float8_llama() -> torch.nn.Module:
    """The same with torchao's rowwise float8 in all blocks, as its eager mode runs it."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    made = titan_llama()
    config = Float8LinearConfig.from_recipe_name("rowwise")
    convert_to_float8_training(made, config=config, module_filter_fn=lambda module, name: name != "model.output")
    return made


class _Layers(torch.nn.ModuleList):
    """torchtitan's layers, which lie in a dictionary, as a list whose equal blocks are found."""

    values = torch.nn.ModuleList.__iter__


class _Fused(torch.nn.Module):
    """Causal attention of [batch, tokens, heads, size]; keys and values may have fewer heads."""

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **ignored: object) -> torch.Tensor:
        """The output, in the same order of dimensions."""
        parts = (one.transpose(1, 2) for one in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2)


def titan_trainer_llama() -> torch.nn.Module:
    """torchtitan's own Llama with four layers, with PyTorch's fused attention in place of FlexAttention."""
    import torchtitan_trainer
    from torchtitan.models.llama3 import model_registry

    torchtitan_trainer.custom([4, 4096, 14336, 32, 8, 128256])
    return _titan_trainer(model_registry("custom", attn_backend="flex").model.build())


def titan_trainer_experts() -> torch.nn.Module:
    """torchtitan's own Qwen 3 30B-A3B with four layers, likewise."""
    from torchtitan.models.qwen3 import model_registry

    torch.autocast = _no_autocast  # PyTorch does not know it of meta tensors; routers multiply in fp32 by it
    model = model_registry("30B-A3B", attn_backend="flex").model
    model.layers = model.layers[:4]
    made = model.build()
    for layer in made.layers.values():
        gate = layer.moe.router.gate
        gate.forward = functools.partial(_in_fp32, gate)
    return _titan_trainer(made)


def _in_fp32(layer: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(hidden.float(), layer.weight.float())


@contextlib.contextmanager
def _no_autocast(*args: object, **kwargs: object) -> Iterator[None]:
    yield


def _titan_trainer(made: torch.nn.Module) -> torch.nn.Module:
    for layer in made.layers.values():
        layer.attention.inner_attention = _Fused()
    made.layers = _Layers(made.layers.values())
    return TitanModel(made, _TRAINER_PLAN)
