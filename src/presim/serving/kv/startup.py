"""What an engine refuses at start-up, once memory is laid out: what its cache cannot hold."""

from __future__ import annotations

from presim.composition.models.description import UNLIMITED, Model
from presim.errors import InputError
from presim.serving.kv.kv_groups import Pool
from presim.serving.serving_plan import AUTO_LENGTH, ServingPlan
from presim.units import GIB


def asked_length(model: Model, plan: ServingPlan) -> int:
    """Tokens of the longest sequence that the plan asks for, or that its engine takes by itself, if they fit."""
    if plan.max_model_len is not None and plan.max_model_len != AUTO_LENGTH:
        return plan.max_model_len
    if plan.kernels == "vllm" or model.longest == UNLIMITED:  # others take all that stretched embeddings allow
        return model.default_length or model.longest
    return model.longest


def model_length(model: Model, plan: ServingPlan, pages: Pool, blocks: int, *, states: bool) -> int:
    """The longest sequence of the engine, in tokens. ``blocks``: pages of its pool, with the null block.

    Raises:
        InputError: vLLM would not start; other engines take the length that their cache holds.
    """
    length = asked_length(model, plan)
    if length > model.longest:
        raise InputError(
            f"--max-model-len {length:,} is above the {model.longest:,} tokens of {model.name}, and engines refuse "
            f"it; give at most {model.longest:,}"
        )
    fits = pages.longest(blocks - 1, length)
    if plan.kernels != "vllm":
        return max(fits, 1)
    if plan.max_model_len == AUTO_LENGTH and fits:
        return fits
    if fits < length:
        raise InputError(_too_long(length, fits, pages, blocks, plan))
    if states and plan.cuda_graphs and plan.max_num_seqs > blocks:
        raise InputError(
            f"vLLM would not start: each of {plan.max_num_seqs:,} sequences needs a page for its state, and the cache "
            f"has {blocks:,} pages; give --max-num-seqs {blocks} at most, or raise --gpu-memory-utilization"
        )
    return length


def _too_long(length: int, fits: int, pages: Pool, blocks: int, plan: ServingPlan) -> str:
    needed, free = (count * pages.page_bytes / GIB for count in (pages.pages(length), blocks - 1))
    shorter = (
        f"at most {fits:,} tokens fit: give --max-model-len {fits} or auto, or raise --gpu-memory-utilization "
        f"({plan.gpu_memory_utilization:g})"
        if fits
        else f"not even one token fits: raise --gpu-memory-utilization ({plan.gpu_memory_utilization:g}) or --tp"
    )
    return (
        f"vLLM would not start: one sequence of {length:,} tokens needs {needed:.2f} GiB of KV cache, and {free:.2f} "
        f"GiB are available; {shorter}"
    )
