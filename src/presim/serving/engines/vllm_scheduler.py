"""vLLM's scheduler and its requests, made from presim's limits and workloads. Needs vLLM."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from presim.serving.engines.engine import Limits
from presim.serving.workloads.workload import Workload
from presim.system.files import write_file

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 1 << 30,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "float16",
}


def scheduler(limits: Limits, folder: Path) -> Any:
    """vLLM's scheduler with these limits, for a small Llama that is never run."""
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        LoRAConfig,
        ModelConfig,
        ParallelConfig,
        SchedulerConfig,
        VllmConfig,
    )
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.structured_output import StructuredOutputManager

    init_none_hash(sha256)
    write_file(folder / "config.json", json.dumps(MODEL).encode())
    model = ModelConfig(
        model=str(folder), skip_tokenizer_init=True, max_model_len=limits.max_model_len, dtype="float16", seed=0
    )
    cache = CacheConfig(
        block_size=limits.block_size,
        gpu_memory_utilization=0.9,
        enable_prefix_caching=limits.enable_prefix_caching,
    )
    cache.num_gpu_blocks = limits.num_gpu_blocks
    scheduling = SchedulerConfig(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        is_encoder_decoder=False,
        policy=limits.policy,
        async_scheduling=limits.async_scheduling,
        watermark=limits.watermark,
        scheduler_reserve_full_isl=limits.scheduler_reserve_full_isl,
        long_prefill_token_threshold=limits.long_prefill_token_threshold,
        prefill_schedule_interval=limits.prefill_schedule_interval,
    )
    config = VllmConfig(
        model_config=model,
        cache_config=cache,
        scheduler_config=scheduling,
        parallel_config=ParallelConfig(pipeline_parallel_size=limits.pipeline_parallel_size),
        device_config=DeviceConfig("cpu"),
    )
    config.scheduler_config.async_scheduling = limits.async_scheduling
    if limits.draft_tokens:
        config.speculative_config = _speculative(limits, config)
    if limits.max_loras:
        config.lora_config = LoRAConfig(max_loras=limits.max_loras, max_lora_rank=8, lora_dtype="float16")
    config.scheduler_config.max_num_seqs = limits.max_num_seqs
    if any(group.kind == "state" for group in limits.apart):
        cache.mamba_cache_mode = "align" if limits.enable_prefix_caching else "none"
    groups = KVCacheConfig(limits.num_gpu_blocks, [], _groups(limits))
    kind = AsyncScheduler if limits.async_scheduling else Scheduler
    return kind(
        vllm_config=config,
        kv_cache_config=groups,
        structured_output_manager=StructuredOutputManager(config),
        block_size=math.lcm(*(group.kv_cache_spec.block_size for group in groups.kv_cache_groups)),
        log_stats=False,
    )


def _groups(limits: Limits) -> list[Any]:
    """Groups of layers with these limits' block tables."""
    import torch
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        KVCacheGroupSpec,
        MambaSpec,
        SlidingWindowSpec,
    )

    common: dict[str, Any] = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float16}
    specs: list[Any] = [FullAttentionSpec(block_size=limits.block_size, **common)]
    for group in limits.apart:
        size: dict[str, Any] = {"block_size": group.block_size}
        if group.kind == "sliding":
            spec: Any = SlidingWindowSpec(**size, **common, sliding_window=group.window)
        elif group.kind == "chunked":
            spec = ChunkedLocalAttentionSpec(**size, **common, attention_chunk_size=group.window)
        elif group.kind == "full":
            spec = FullAttentionSpec(**size, **common)
        else:
            mode = "align" if limits.enable_prefix_caching else "none"
            if mode == "none":
                size["block_size"] = limits.max_model_len  # one state for all of a request
            spec = MambaSpec(**size, shapes=((1,),), dtypes=(torch.float16,), mamba_cache_mode=mode)
        specs += [spec] * group.groups
    return [KVCacheGroupSpec([f"layer.{number}"], spec) for number, spec in enumerate(specs)]


def _speculative(limits: Limits, config: Any) -> Any:
    """A configuration of n-gram drafting, renamed: the scheduler asks for the method and loads no drafter."""
    from vllm.config import SpeculativeConfig

    speculative: Any = SpeculativeConfig(
        method="ngram",
        num_speculative_tokens=limits.draft_tokens,
        prompt_lookup_max=2,
        prompt_lookup_min=1,
        target_model_config=config.model_config,
        target_parallel_config=config.parallel_config,
    )
    speculative.draft_model_config = None
    speculative.method = "draft_model" if limits.draft_method == "draft" else limits.draft_method
    return speculative


class _Grammar:
    """A grammar that allows all."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Take tokens."""
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The tokens that are allowed."""
        return tokens


def compiled(request: Any) -> None:
    """A request's grammar is compiled."""
    request.structured_output_request.grammar = _Grammar()


def token_of(workload: Workload, item: int, position: int) -> int:
    """A token of a request's stream: another one in each place, and the same in the same place of one stream."""
    return (int(workload.stream[item]) * 1_000_003 + position * 7919) % (1 << 28)


def tokens_of_prompt(workload: Workload, item: int) -> list[int]:
    """Tokens of a request's prompt: those of its segments, which others may have too, then its own."""
    first, end = workload.segment_first[item : item + 2]
    prompt, segment_tokens = int(workload.prompt[item]), workload.segment_tokens
    places = np.arange(segment_tokens if end > first else 0)
    shared = (workload.segments[first:end, None] * segment_tokens + places).ravel()[:prompt] % (1 << 29) + (1 << 28)
    stream_tokens = (workload.stream[item] * 1_000_003 + np.arange(len(shared), prompt) * 7919) % (1 << 28)
    tokens: list[int] = np.concatenate([shared, stream_tokens]).tolist()
    return tokens


def request(workload: Workload, item: int, limits: Limits) -> Any:
    """A request of a workload, with tokens that are alike where the workload says so."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import StructuredOutputsParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    adapter = int(workload.adapter[item])
    grammar = StructuredOutputsParams(regex=".*") if workload.grammar_ns[item] >= 0 else None
    vllm_request = Request(
        request_id=f"{item:08d}",
        prompt_token_ids=tokens_of_prompt(workload, item),
        sampling_params=SamplingParams(
            max_tokens=int(workload.output[item]), ignore_eos=True, structured_outputs=grammar
        ),
        pooling_params=None,
        arrival_time=float(workload.arrival_ns[item]),
        priority=int(workload.priority[item]),
        lora_request=LoRARequest(str(adapter), adapter, "none") if adapter else None,
        block_hasher=get_request_block_hasher(limits.block_size, sha256, int(limits.sees_next_token)),
    )
    if grammar is not None and workload.grammar_ns[item] == 0:
        compiled(vllm_request)
    return vllm_request
