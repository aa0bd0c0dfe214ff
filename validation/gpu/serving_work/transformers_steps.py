"""Steps of transformers' Llama 3 8B with random weights: decodes over a static cache in a CUDA graph, prompts eager."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

from serving_work.steps import MODELS, whole
from serving_work.timing import Case, Run, eager

DECODES = ((1, 1024), (8, 1024), (8, 4096), (32, 1024))
PROMPTS = ((1, 512), (1, 2048), (1, 8192))
LAST = 64  # tokens of the cache that stay free


@functools.cache
def model() -> torch.nn.Module:
    """The model in BF16 on the GPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = MODELS["llama-3-8b"]
    config = LlamaConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        max_position_embeddings=8192,
        rope_theta=500000.0,
        attn_implementation="sdpa",
    )
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            made = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(kept)
    made = made.to_empty(device="cuda").eval()
    for parameter in made.parameters():
        parameter.data.normal_(0.0, 0.02)
    made.model.rotary_emb = type(made.model.rotary_emb)(config, device="cuda")
    return made


@torch.inference_mode()
def decode(count: int, context: int) -> list[Run]:
    """One token of each sequence behind a context."""
    from transformers import StaticCache

    llama = model()
    cache = StaticCache(config=llama.config, max_cache_len=context)
    length = context - LAST
    prompt = torch.randint(128256, (count, length), device="cuda")
    llama(input_ids=prompt[:, :8], past_key_values=cache, use_cache=True, logits_to_keep=1)
    tokens = prompt[:, :1].contiguous()
    place = torch.tensor([length], device="cuda")
    positions = place.expand(count, 1)
    mask = (torch.arange(context, device="cuda") <= place)[None, None, None].expand(count, 1, 1, context)

    @torch.inference_mode()
    def run() -> object:
        return llama(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        ).logits.argmax(-1)

    return [run]


@torch.inference_mode()
def prefill(count: int, length: int) -> list[Run]:
    """A prompt without a cache of keys and values."""
    llama = model()
    prompt = torch.randint(128256, (count, length), device="cuda")

    @torch.inference_mode()
    def run() -> object:
        return llama(input_ids=prompt, use_cache=False, logits_to_keep=1).logits.argmax(-1)

    return [run]


def cases() -> Iterator[Case]:
    """Prompts, then decodes."""
    for count, length in PROMPTS:
        shape = {"sequences": [(count, length, length)]}
        yield Case("transformers", shape, functools.partial(prefill, count, length), eager)
    for count, context in DECODES:
        shape = {"sequences": [(count, 1, context)]}
        yield Case("transformers", shape, functools.partial(decode, count, context), whole)
