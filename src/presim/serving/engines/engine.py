"""Types that describe engines: limits (`Limits`), step times (`StepTimes`), and fleets (`Replica`, `Fleet`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.fast import serving_state

Floats = NDArray[np.float64]
Role = Literal["any", "prefill", "decode"]
Router = Literal["round-robin", "least-loaded", "power-of-two", "prefix", "session"]

ROLES: dict[Role, int] = {"any": serving_state.ANY, "prefill": serving_state.PREFILL, "decode": serving_state.DECODE}
ROUTERS: dict[Router, int] = {
    "round-robin": serving_state.ROUND_ROBIN,
    "least-loaded": serving_state.LEAST_LOADED,
    "power-of-two": serving_state.POWER_OF_TWO,
    "prefix": serving_state.PREFIX,
    "session": serving_state.SESSION,
}
GRID = serving_state.GRID


@dataclasses.dataclass(frozen=True)
class Tiers:
    """Host memory and disk as tiers for cached blocks evicted from the GPU."""

    host_blocks: int = 0
    disk_blocks: int = 0
    host_block_ns: int = 0  # time to load a block from host memory to the GPU
    disk_block_ns: int = 0  # time to load a block from disk to host memory
    latency_ns: int = 0  # latency of loading blocks
    shared_block_ns: int = 0  # time of a block over the engine's network ports, to or from the shared pool

    @property
    def sizes(self) -> tuple[int, int]:
        """Blocks of host memory and of disk."""
        return self.host_blocks, self.disk_blocks


@dataclasses.dataclass(frozen=True)
class Apart:
    """Groups of layers that have pages of the same pool beside the group by which prefixes are found."""

    kind: Literal["full", "sliding", "chunked", "state"]
    groups: int
    block_size: int  # tokens of a page
    window: int = 0  # tokens looked back on; of states: pages of a sequence that decodes
    cap: int = 1 << 40  # pages of a request in one group at most

    def pages(self, tokens: int) -> int:
        """Pages of a request of so many tokens at most."""
        blocks = self.cap if self.kind == "state" else min(-(-tokens // self.block_size), self.cap)
        return self.groups * blocks


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of an engine's scheduler, with vLLM's names; defaults as in vLLM 0.33.

    SGLang's: `max_running_requests` is max_num_seqs, `chunked_prefill_size` max_num_batched_tokens, and `page_size`
    block_size.
    """

    num_gpu_blocks: int  # including the null block
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 131072
    async_scheduling: bool = True
    policy: Literal["fcfs", "priority"] = "fcfs"
    enable_prefix_caching: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    long_prefill_token_threshold: int = 0
    prefill_schedule_interval: int = 1  # steps from one with prompts to the next, while there are decodes
    pipeline_parallel_size: int = 1
    draft_tokens: int = 0  # speculative tokens of each decode in a step
    draft_method: Literal["mtp", "eagle", "draft", "ngram"] = "eagle"  # where tokens are drafted
    acceptance: float = 0.0  # probability that one is accepted while all before it were
    scheduler_recv_interval: int = 1  # SGLang's: steps between looks at what arrived, while there are decodes
    scheduler: Literal["vllm", "sglang"] = "vllm"  # whose decisions are taken
    max_prefill_tokens: int = 16384  # SGLang's, with its default: prompt tokens after which a step takes no more
    max_loras: int = 0  # adapters of the running requests together; 0: no request has one
    graph_tokens: int = 0  # of the largest CUDA graph; 0: there is none
    tiers: Tiers = Tiers()
    apart: tuple[Apart, ...] = ()

    def __post_init__(self) -> None:
        """Raise InputError on values with which no engine starts."""
        if self.num_gpu_blocks < 2:
            raise InputError(
                f"the KV cache has {self.num_gpu_blocks} blocks of {self.block_size} tokens, and vLLM reserves one "
                "of them: give the engine more memory"
            )
        least = min(self.max_num_seqs, self.max_num_batched_tokens, self.max_model_len, self.pipeline_parallel_size)
        most_stages = serving_state.STAGES_AT_MOST
        if least < 1 or self.pipeline_parallel_size > most_stages:
            raise InputError(f"batch limits must be at least 1 and stages at most {most_stages}; correct them")

    @property
    def depth(self) -> int:
        """Batches in flight: vLLM's max_concurrent_batches with its second model runner."""
        return self.pipeline_parallel_size + (1 if self.async_scheduling else 0)

    @property
    def lookahead(self) -> int:
        """Tokens beyond a step's for which blocks are kept: those whose keys and values the drafter writes."""
        return 0 if self.draft_method == "ngram" else self.draft_tokens

    @property
    def sees_next_token(self) -> bool:
        """Whether the drafter's keys and values depend on the token behind, so that cached blocks do, too."""
        return self.draft_tokens > 0 and self.draft_method in ("mtp", "eagle")

    @property
    def draft_slots(self) -> int:
        """Tokens of the budget that the drafter takes for each request (`max_num_new_slots_for_drafting`)."""
        return 1 if self.draft_tokens > 0 and self.draft_method == "draft" else 0

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds, of requests that are as long as possible."""
        pages = self.num_gpu_blocks - 1
        return pages * self.max_model_len // self.pages(self.max_model_len) if self.apart else pages * self.block_size

    def pages(self, tokens: int) -> int:
        """Pages of the pool that a request of so many tokens has at most."""
        return -(-tokens // self.block_size) + sum(group.pages(tokens) for group in self.apart)

    def holds(self, requests: int, tokens: int) -> bool:
        """Whether so many requests of so many tokens each have room together."""
        if not self.apart:  # blocks that are not full are not counted
            return requests * tokens <= self.kv_tokens
        return requests * self.pages(tokens) < self.num_gpu_blocks


@dataclasses.dataclass(frozen=True, eq=False)
class StepTimes:
    """Times of one pipeline stage for a step, in ns, as `presim.serving.fast.step_cost` reads them."""

    token_ns: Floats  # [tokens in the step] linear layers and communication
    head_ns: Floats  # [sampled rows: sequences and drafted tokens] logits and sampling
    prefill_ns: Floats  # [log2 queries, log2 keys] attention of one prompt's chunk
    decode_ns: Floats  # [log2 sequences, log2 keys] attention of all decodes
    host_ns: float = 0.0  # host time before a step
    host_seq_ns: float = 0.0
    back_ns: float = 0.0  # host time after a step
    back_seq_ns: float = 0.0
    # [tokens of a rank] experts and their exchange if data-parallel ranks share experts; else included in `token_ns`
    shared_ns: Floats = dataclasses.field(default_factory=lambda: np.zeros(1))
    # [tokens in the step] host time to launch the kernels of a step with prompt tokens, and of one that only decodes
    # (less with a CUDA graph); the device cannot be done before. None: no time.
    prompt_launch_ns: Floats | None = None
    decode_launch_ns: Floats | None = None
    lora_ns: Floats | None = None  # [tokens of the step that have an adapter]; None: adapters take no time
    mask_ns: float = 0.0  # of the host, for a row of the mask by which a grammar allows tokens
    # Part of `token_ns`: the fixed time of attention kernels, where one takes all sequences of a step
    attention_fixed_ns: float = 0.0

    def step_ns(self, prefills: list[tuple[int, int]], decodes: list[int]) -> float:
        """Time of a stage in ns for chunks (queries, keys) and decodes (keys), computed as in the loop.

        It is the device's, or the host's to launch the kernels where that is longer.
        """
        tokens = sum(queries for queries, _ in prefills) + len(decodes)
        total = float(self.token_ns[tokens] + self.head_ns[len(prefills) + len(decodes)])
        total += float(self.shared_ns[min(tokens, len(self.shared_ns) - 1)])
        total += sum(between(self.prefill_ns, queries, keys) for queries, keys in prefills)
        total += between(self.decode_ns, len(decodes), sum(decodes) / len(decodes)) if decodes else 0.0
        return max(total, self.launch_ns(tokens, prompts=bool(prefills)))

    def launch_ns(self, tokens: int, *, prompts: bool) -> float:
        """Host time in ns to launch the kernels of a step."""
        launches = self.prompt_launch_ns if prompts else self.decode_launch_ns
        return 0.0 if launches is None else float(launches[tokens])


def between(table: Floats, row_size: float, column_size: float) -> float:
    """Interpolate between a table's powers of two."""
    from presim.serving.fast import step_cost

    return step_cost.between(np.log2(table).ravel().tolist(), 0, float(row_size), float(column_size))


def constant_times(ns: float, limits: Limits) -> StepTimes:
    """Step times that are all equal, for tests of scheduling."""
    return StepTimes(
        np.full(limits.max_num_batched_tokens + 1, ns),
        np.zeros(limits.max_num_seqs * (1 + limits.draft_tokens) + 1),
        np.full((GRID, GRID), 1e-9),
        np.full((GRID, GRID), 1e-9),
    )


@dataclasses.dataclass(frozen=True)
class Replica:
    """One engine of a fleet."""

    limits: Limits
    times: StepTimes
    role: Role = "any"
    group: int = -1  # adjacent replicas with the same number share experts and step together; -1: none
    born_ns: int = 0  # earliest time it serves requests
    gone_ns: int = serving_state.FOREVER  # time after which it accepts no requests; running ones finish


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Kubernetes' horizontal autoscaler over engines, with an average-value target."""

    least: int
    most: int
    on: Literal["queue", "utilization"] = "utilization"
    target: float = 0.7  # per engine: waiting requests, or requests / max_num_seqs
    interval_s: float = 15.0  # Kubernetes' default
    cooldown_s: float = 300.0  # Kubernetes' default, before engines are removed

    def __post_init__(self) -> None:
        """Raise InputError on values that no autoscaler accepts."""
        if not 1 <= self.least <= self.most:
            raise InputError(f"an autoscaler goes from {self.least} to {self.most} engines; write 1 <= MIN <= MAX")
        if min(self.target, self.interval_s) < 1e-3 or self.cooldown_s < 0:
            raise InputError(
                f"an autoscaler needs a target and an interval of at least 0.001, not {self.target:g} and "
                f"{self.interval_s:g} s; correct them"
            )


@dataclasses.dataclass(frozen=True)
class Life:
    """How engines start, fail and are removed."""

    scaling: Scaling | None = None
    start_s: float = 120.0  # a round estimate: from requesting an engine, or its failure, to its first request
    mtbf_h: float | None = None  # mean time between failures of an engine, exponentially distributed; None: no failures
    after_failure: Literal["resume", "restart", "lose"] = "resume"
    detect_s: float = 5.0  # a round estimate: from a failure to rerouting its requests
    drain_s: float | None = None  # longest time that a removed engine keeps its requests; None: until they finish

    def __post_init__(self) -> None:
        """Raise InputError on negative times."""
        times = (self.start_s, self.detect_s, self.drain_s or 0.0)
        if min(times) < 0 or (self.mtbf_h is not None and self.mtbf_h <= 0):
            raise InputError("times to start, detect and drain must be at least 0, and the MTBF above 0; correct them")


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Engines behind a router."""

    replicas: tuple[Replica, ...]
    router: Router = "round-robin"
    seed: int = 0
    input_ns: int = 0  # from a client to the engine's queue: HTTP, tokenization
    output_ns: int = 0  # from the engine to the client: detokenization, HTTP
    kv_token_bytes: int = 0  # KV bytes per token over all layers, moved from prefill to decode
    port_bytes_per_s: float = math.inf
    port_ns: int = 0
    life: Life | None = None  # replicas start, stop or fail; None: all serve all the time
    input_token_ns: int = 0  # from a client to the engine's queue, for each token of the prompt
    input_load_ns: int = 0  # and for each request of the engine that has not ended
    pool_blocks: int = 0  # capacity of the pool of cached blocks that all replicas share; 0: there is none
    pool_block_ns: int = 0  # time of a block over the pool's own links; 0: they are no limit

    def __post_init__(self) -> None:
        """Raise InputError on a fleet without prefill or without decode replicas."""
        roles = {replica.role for replica in self.replicas}
        if not self.replicas:
            raise InputError("a fleet needs at least one replica; set --replicas")
        if ("prefill" in roles) != ("decode" in roles):
            raise InputError("disaggregated serving needs prefill and decode replicas; set both numbers")


Scaled = Callable[[StepTimes], StepTimes]
