"""vLLM's own scheduler, stepped as in its engine core, with an executor that returns after simulated time.

Runs in a separate process, started by `presim.serving.engines.real`.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from presim.serving.engines.engine import Limits, StepTimes
from presim.serving.engines.real import read_input, write_result
from presim.serving.fast import cost
from presim.serving.workloads.workload import Ints, Workload

_MODEL = {
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
    """vLLM's scheduler with these limits, configured for a small Llama model that never runs."""
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    init_none_hash(sha256)
    (folder / "config.json").write_text(json.dumps(_MODEL))
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
    )
    config = VllmConfig(
        model_config=model,
        cache_config=cache,
        scheduler_config=scheduling,
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
    )
    config.scheduler_config.async_scheduling = limits.async_scheduling
    config.scheduler_config.max_num_seqs = limits.max_num_seqs
    spec = FullAttentionSpec(block_size=limits.block_size, num_kv_heads=1, head_size=1, dtype=torch.float16)
    groups = KVCacheConfig(limits.num_gpu_blocks, [], [KVCacheGroupSpec(["layer"], spec)])
    kind = AsyncScheduler if limits.async_scheduling else Scheduler
    return kind(
        vllm_config=config,
        kv_cache_config=groups,
        structured_output_manager=StructuredOutputManager(config),
        block_size=limits.block_size,
        log_stats=False,
    )


def token_of(workload: Workload, item: int, place: int) -> int:
    """A token of a request: it depends on the stream and the position only."""
    return (int(workload.stream[item]) * 1_000_003 + place * 7919) % (1 << 28)


def request(workload: Workload, item: int, limits: Limits) -> Any:
    """A vLLM request for an item of the workload; shared prefixes have equal tokens."""
    from vllm import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher
    from vllm.v1.request import Request

    first, end = workload.segment_first[item : item + 2]
    tokens = [
        (1 << 28) + (int(segment) * workload.segment_tokens + place) % (1 << 29)
        for segment in workload.segments[first:end]
        for place in range(workload.segment_tokens)
    ][: int(workload.prompt[item])]
    tokens += [token_of(workload, item, place) for place in range(len(tokens), int(workload.prompt[item]))]
    return Request(
        request_id=f"{item:08d}",
        prompt_token_ids=tokens,
        sampling_params=SamplingParams(max_tokens=int(workload.output[item]), ignore_eos=True),
        pooling_params=None,
        arrival_time=float(workload.arrival_ns[item]),
        priority=int(workload.priority[item]),
        block_hasher=get_request_block_hasher(limits.block_size, sha256),
    )


class Engine:
    """vLLM's `EngineCore.step_with_batch_queue` in simulated time."""

    def __init__(self, limits: Limits, times: StepTimes, folder: Path, input_ns: int = 0, output_ns: int = 0) -> None:
        self.limits, self.times, self.scheduler = limits, times, scheduler(limits, folder)
        self.input_ns, self.output_ns = input_ns, output_ns
        self.queue: deque[tuple[Any, int, set[str]]] = deque()
        self.device_free = 0
        self.steps: list[dict[int, int]] = []
        self.free_blocks: list[int] = []
        self.prefill_log, self.decode_log = (
            np.log2(table).ravel().tolist() for table in (times.prefill_ns, times.decode_ns)
        )

    def serve(self, workload: Workload) -> tuple[Ints, Ints]:
        """Serve a workload to its end; returns the times (ns) of each request's first and last token at the client."""
        self.first, self.last = (np.full(len(workload), -1, np.int64) for _ in range(2))
        now, next_item = 0, 0
        arrival = workload.arrival_ns + self.input_ns
        while next_item < len(workload) or self.scheduler.has_requests() or self.queue:
            if not self.scheduler.has_requests() and not self.queue:
                now = max(now, int(arrival[next_item]))
            while next_item < len(workload) and arrival[next_item] <= now:
                self.scheduler.add_request(request(workload, next_item, self.limits))
                next_item += 1
            now = self._step(workload, now)
        return self.first, self.last

    def _step(self, workload: Workload, now: int) -> int:
        times = self.times
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            executed = output.total_num_scheduled_tokens > 0
            end = now
            if executed:
                now += int(times.host_ns + times.host_seq_ns * len(output.num_scheduled_tokens))
                end = self.device_free = max(now, self.device_free) + self._device_ns(output)
                self.steps.append({int(key): count for key, count in output.num_scheduled_tokens.items()})
                self.free_blocks.append(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())
            self.queue.append((output, end, self._samples(output)))
            if len(self.queue) < self.limits.depth and (executed or self.scheduler.has_requests()):
                return now
        output, end, samples = self.queue.popleft()
        now = max(now, end)
        self.scheduler.update_from_output(output, self._result(workload, output, samples))
        if output.num_scheduled_tokens:
            now += int(times.back_ns + times.back_seq_ns * len(output.num_scheduled_tokens))
        for name in samples:
            item = int(name)
            self.first[item] = now + self.output_ns if self.first[item] < 0 else self.first[item]
            if self.last[item] < 0 and name not in self.scheduler.requests:
                self.last[item] = now + self.output_ns
        return now

    def _device_ns(self, output: Any) -> int:
        """Device time of a batch, as `presim.serving.fast.cost.device_ns`."""
        decodes = context = 0
        attention = 0.0
        for name, new in output.num_scheduled_tokens.items():
            computed = self.scheduler.requests[name].num_computed_tokens
            if new == 1:
                decodes += 1
                context += computed
            else:
                attention += cost.between(self.prefill_log, 0, float(new), float(computed))
        if decodes:
            attention += cost.between(self.decode_log, 0, float(decodes), context / decodes)
        tokens, count = output.total_num_scheduled_tokens, len(output.num_scheduled_tokens)
        return int(float(self.times.token_ns[tokens]) + float(self.times.head_ns[count]) + attention)

    def _samples(self, output: Any) -> set[str]:
        return {name for name in output.num_scheduled_tokens if not self.scheduler.requests[name].is_prefill_chunk}

    def _result(self, workload: Workload, output: Any, samples: set[str]) -> Any:
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(output.num_scheduled_tokens)
        tokens = []
        for name in names:
            known = self.scheduler.requests.get(name)
            place = known.num_tokens if known is not None else 0
            tokens.append([token_of(workload, int(name), place)] if name in samples else [])
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )


def main(folder: Path) -> None:
    """Serve the input written by `presim.serving.engines.real`."""
    workload, limits, times, input_ns, output_ns = read_input(folder)
    engine = Engine(limits, times, folder, input_ns, output_ns)
    first, last = engine.serve(workload)
    write_result(folder, first, last, len(engine.steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
