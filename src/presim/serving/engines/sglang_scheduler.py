"""SGLang's own `Scheduler` without its model worker and sockets, and requests of a workload for it (SGLang 0.5.23).

`Scheduler.__init__` starts a worker on a GPU. Here the object is made without it and is given what its decisions need:
its pools and its radix cache in the host's memory, its policy, its processor of results. What only reports or sends is
replaced by `Nothing`.
"""

from __future__ import annotations

import array
import inspect
import json
from pathlib import Path
from typing import Any

from presim.serving.engines.engine import Limits
from presim.serving.engines.vllm_scheduler import MODEL, tokens_of_prompt
from presim.serving.workloads.workload import Workload
from presim.system.files import write_file

_OFF = (
    *("enable_lora", "enable_hierarchical_cache", "enable_hicache_storage", "enable_lmcache", "enable_hisparse"),
    *("enable_priority_scheduling", "schedule_low_priority_values_first", "abort_on_priority_when_disabled"),
    *("enable_unified_cache_external_linker", "attn_dp_enabled", "require_mlp_sync", "enable_unified_memory"),
    *("enable_overlap_mlx", "enable_fpm"),
)
_NONE = (
    *("dllm_config", "hisparse_coordinator", "decode_offload_manager", "draft_worker", "min_free_slots_delayer"),
    *("dynamic_chunk_sizer", "truncation_align_size", "lora_drainer", "max_queued_requests", "scheduler_stage_metrics"),
)


class Nothing:
    """Stands for what reports and sends: whatever is asked of it is nothing, too."""

    def __getattr__(self, name: str) -> Nothing:
        """Nothing, except for what Python itself asks."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *arguments: Any, **named: Any) -> Nothing:
        """Does nothing."""
        return Nothing()

    def __bool__(self) -> bool:
        """No."""
        return False

    def __add__(self, other: Any) -> int:
        """Nothing."""
        return 0


class _Unchanged:
    """Stands for what changes batches of data-parallel ranks and of models with n-gram embeddings: there are none."""

    def maybe_prepare_mlp_sync_batch(self, batch: Any, need_sync: bool | None = None) -> Any:
        """The batch."""
        return batch

    def maybe_convert_decode_to_extend(self, batch: Any) -> Any:
        """The batch."""
        return batch

    def prepare_for_forward(self, batch: Any, chunked_req: Any = None) -> Any:
        """The batch."""
        return batch


def scheduler(limits: Limits, folder: Path) -> Any:
    """SGLang's scheduler with these limits, for a small Llama that is never run."""
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.disaggregation.utils import DisaggregationMode
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    write_file(folder / "config.json", json.dumps(MODEL).encode())
    args = ServerArgs(
        model_path=str(folder),
        device="cpu",
        skip_tokenizer_init=True,
        attention_backend="torch_native",
        sampling_backend="pytorch",
        page_size=limits.block_size,
        max_running_requests=limits.max_num_seqs,
        pp_max_micro_batch_size=limits.max_num_seqs,
        chunked_prefill_size=limits.max_num_batched_tokens,
        max_prefill_tokens=limits.max_prefill_tokens,
        context_length=limits.max_model_len,
        disable_radix_cache=not limits.enable_prefix_caching,
        disable_overlap_schedule=not limits.async_scheduling,
        scheduler_recv_interval=limits.scheduler_recv_interval,
        disable_cuda_graph=True,
    )
    publish(args, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    core: Any = Scheduler.__new__(Scheduler)
    core.server_args, core.device, core.page_size = args, "cpu", limits.block_size
    core.enable_overlap = core.enable_skip_finishing_decode = limits.async_scheduling
    core.spec_algorithm, core.model_config = SpeculativeAlgorithm.from_string(None), ModelConfig.from_server_args(args)
    core.schedule_policy, core.priority_scheduling_preemption_threshold = "fcfs", 0
    core.max_running_requests, core.max_prefill_tokens = limits.max_num_seqs, limits.max_prefill_tokens
    core.disaggregation_mode, core.is_generation, core.is_hybrid_swa = DisaggregationMode.NULL, True, False
    for name in _OFF:
        setattr(core, name, False)
    for name in _NONE:
        setattr(core, name, None)
    _give_memory(core, limits)
    core.tp_worker = core.model_worker = core.metrics_reporter = core.metrics_collector = Nothing()
    core.future_map = core.output_streamer = core.load_inquirer = core.load_publisher = core.grammar_manager = Nothing()
    core.dp_attn_adapter = core.ngram_embedding_manager = _Unchanged()
    core.processed_tokens_counter, core.max_req_len = 0, limits.max_model_len
    core.init_running_status()
    core.enable_skip_finishing_decode = limits.async_scheduling
    core.init_chunked_prefill()
    core.init_schedule_policy()
    core.init_batch_result_processor()
    return core


def _give_memory(core: Any, limits: Limits) -> None:
    """The scheduler's pools of rows and pages, and its cache of prefixes."""
    import torch
    from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
    from sglang.srt.mem_cache.registry import TreeCacheBuildContext, create_tree_cache

    pool: Any = Nothing()
    size = limits.block_size
    paged = () if size == 1 else (size,)
    kind: Any = PagedTokenToKVPoolAllocator if paged else TokenToKVPoolAllocator
    core.req_to_token_pool = ReqToTokenPool(limits.max_num_seqs, limits.max_model_len + size, "cpu", False)
    core.token_to_kv_pool_allocator = kind(limits.kv_tokens, *paged, torch.float16, "cpu", pool, False)
    params = CacheInitParams(
        disable=not limits.enable_prefix_caching,
        req_to_token_pool=core.req_to_token_pool,
        token_to_kv_pool_allocator=core.token_to_kv_pool_allocator,
        page_size=size,
        chunked_prefill_size=limits.max_num_batched_tokens,
    )
    context: dict[str, Any] = dict.fromkeys(inspect.signature(TreeCacheBuildContext).parameters)
    context |= {"server_args": core.server_args, "params": params, "model_config": core.model_config}
    context |= {"is_hybrid_swa": False, "is_hybrid_ssm": False, "is_dsa": False, "enable_hierarchical_cache": False}
    context["disable_radix_cache"] = not limits.enable_prefix_caching
    core.tree_cache = create_tree_cache(TreeCacheBuildContext(**context))
    core.disable_radix_cache = not limits.enable_prefix_caching


def request(workload: Workload, item: int) -> Any:
    """A request of a workload, with tokens that are alike where the workload says so."""
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.sampling.sampling_params import SamplingParams

    sampling = SamplingParams(max_new_tokens=int(workload.output[item]), ignore_eos=True)
    sampling.normalize(None)
    sglang_request: Any = Req(
        f"{item:08d}", "", array.array("q", tokens_of_prompt(workload, item)), sampling, vocab_size=MODEL["vocab_size"]
    )
    return sglang_request
