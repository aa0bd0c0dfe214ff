"""A serving plan: parallelism, data types, memory, and batch limits of one engine."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Literal

from presim.composition.models.decoder_layers import Attention, Latent, Mamba, WeightType
from presim.composition.models.description import Model
from presim.errors import InputError
from presim.serving.drafting import Drafting

Weights = WeightType
Kernels = Literal["vllm", "sglang", "trtllm"]
Scheduler = Literal["vllm", "sglang"]
Cache = Literal["bf16", "fp8", "int8"]  # INT8 has a factor for each token and head
DTYPES: dict[str, str] = {
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "fp8-block": "float8_e4m3fn",
    "fp4": "float4_e2m1fn_x2",
    "mxfp4": "bfloat16",  # of gpt-oss' experts, whose price does not use this type
    "int4": "bfloat16",  # matrix products run in 16 bits on weights unpacked on the fly
    "fp4-only": "bfloat16",  # likewise
    "int8-only": "bfloat16",  # likewise
    "int8": "int8",
}
VLLM_CACHES: dict[str, str] = {"bf16": "auto", "fp8": "fp8", "int8": "int8_per_token_head"}  # --kv-cache-dtype
WEIGHT_BYTES: dict[str, float] = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0 + 4 / 16384,
    "fp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4": 0.5 + 2 / 128,
    "fp4-only": 0.5 + 1 / 16,
    "int8-only": 1.0,
    "int8": 1.0,
}


AUTO_LENGTH = -1  # vLLM's number for `--max-model-len auto`


@dataclasses.dataclass(frozen=True)
class Offload:
    """Capacity for cached blocks outside the GPUs, per engine."""

    host_gib: float = 0.0
    disk_gib: float = 0.0
    host_gbps: float | None = None  # GB/s from host memory to one GPU; None: from the node type
    disk_gbps: float = 6.0  # sequential GB/s of all disks of a node: a round value for one NVMe drive

    def __post_init__(self) -> None:
        """Raise InputError on negative capacities or bandwidths."""
        if min(self.host_gib, self.disk_gib) < 0 or min(self.host_gbps or 1.0, self.disk_gbps) <= 0:
            raise InputError("capacities for KV blocks must be at least 0, and bandwidths above 0; correct them")


@dataclasses.dataclass(frozen=True)
class ServingPlan:
    """One engine."""

    tp: int = 1  # tensor-parallel degree of attention
    pp: int = 1  # pipeline stages
    dp: int = 1  # data-parallel degree of attention; these ranks share the experts
    dcp: int = 1  # decode context parallelism: so many ranks of a tensor-parallel group divide the tokens of the cache
    ep: bool = False  # expert parallelism: whole experts on tp x dp ranks; else experts are split by tensor parallelism
    weights: Weights = "bf16"
    expert_weights: Weights | None = None  # None: same as the other weights
    as_published: bool = False  # each weight has the type of the checkpoint; the two fields above say what most have
    cache: Cache = "bf16"
    gpu_memory_utilization: float = 0.92  # vLLM 0.33's default
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int | None = None  # None: the model's own; AUTO_LENGTH: what the cache holds, up to it
    block_size: int = 16
    async_scheduling: bool = True
    prefix_caching: bool = True
    policy: Literal["fcfs", "priority"] = "fcfs"
    cuda_graphs: bool = True
    graph_tokens: int | None = None  # of the largest CUDA graph; None: the engine's
    num_gpu_blocks: int | None = None  # overrides the number from the memory plan
    scheduler: Scheduler | None = None  # whose decisions are taken; None: SGLang's with its kernels, else vLLM's
    max_prefill_tokens: int = 16384  # SGLang's default
    scheduler_recv_interval: int = 1  # SGLang; vLLM polls for new requests before each step
    prefill_schedule_interval: int = 1  # vLLM: steps from one with prompts to the next, while there are decodes
    drafting: Drafting | None = None  # speculative decoding
    max_loras: int = 0  # LoRA adapters in a batch together; 0: none are served
    lora_rank: int = 16  # vLLM's default of max_lora_rank
    kernels: Kernels = "vllm"  # whose kernels compute the experts
    fp8_products: Literal["deepgemm", "flashinfer"] | None = None  # for FP8 by blocks; None: the engine's
    offload: Offload | None = None  # cached blocks that the GPU gives up go to host memory and disk
    engine_version: str | None = None  # None: the newest that is known (`presim.serving.engine_versions`)
    defaulted: tuple[str, ...] = ()  # fields whose values are the engine's defaults for the GPU

    @property
    def gpus(self) -> int:
        """GPUs of the engine, including all data-parallel ranks."""
        return self.tp * self.pp * self.dp

    @property
    def engine(self) -> Kernels:
        """Whose engine it is: the scheduler's, or TensorRT-LLM's, for whose scheduler vLLM's stands in."""
        return "trtllm" if self.kernels == "trtllm" else self.decides

    @property
    def decides(self) -> Scheduler:
        """Whose scheduler chooses the requests of a step; SGLang's pipeline stages are scheduled as vLLM's."""
        scheduler = self.scheduler or ("sglang" if self.kernels == "sglang" else "vllm")
        return "vllm" if self.pp > 1 else scheduler

    @property
    def of_experts(self) -> Weights:
        """Weight type of the routed experts."""
        return self.expert_weights or self.weights

    def check(self, model: Model) -> None:
        """Raise InputError if the model cannot be split this way."""
        if min(self.tp, self.pp, self.dp) < 1:
            raise InputError(f"tp {self.tp}, pp {self.pp} and dp {self.dp} must be at least 1; correct them")
        self._check_heads(model)
        if self.dcp != 1:
            self._check_context(model)
        if self.pp > model.layers:
            raise InputError(f"{model.name} has {model.layers} layers, fewer than pp {self.pp}; choose fewer stages")
        if self.dp > 1 and model.experts is None:
            raise InputError(
                f"{model.name} has no experts for {self.dp} data-parallel ranks to share: use --replicas instead of "
                "--dp"
            )
        if self.ep and model.experts is None:
            raise InputError(f"{model.name} has no experts to spread over ranks; leave out --ep")
        if self.decides == "sglang" and self.policy != "fcfs":
            raise InputError("SGLang's scheduling by priority is not modelled; leave out --policy")
        if self.prefill_schedule_interval > 1 and (self.decides == "sglang" or self.dp > 1):
            raise InputError(
                "--prefill-schedule-interval is modelled for vLLM's scheduler without data-parallel ranks; leave it out"
            )
        if self.cache == "int8" and (model.latent is not None or self.kernels != "vllm"):
            raise InputError("an INT8 KV cache is vLLM's, of models without latent attention; use --kv fp8")
        if self.weights == "mxfp4" and not self.as_published:
            raise InputError("MXFP4 is a type of experts' weights alone: use --expert-weights mxfp4")
        if self.max_loras and model.latent is not None:
            raise InputError(
                f"LoRA over the latent attention of {model.name} is not modelled; leave out --max-loras, or choose a "
                "model with plain attention"
            )
        if not 0 < self.gpu_memory_utilization <= 1:
            raise InputError(
                f"--gpu-memory-utilization {self.gpu_memory_utilization} must be above 0 and at most 1; correct it"
            )

    def _check_heads(self, model: Model) -> None:
        of_states = [mixer.heads for mixer in model.recurrent if isinstance(mixer, Mamba) and mixer.heads]
        for heads in (*model.heads, *of_states):
            if heads % self.tp:
                raise InputError(f"tp {self.tp} does not divide {heads} heads; choose a divisor of {heads}")

    def _check_context(self, model: Model) -> None:
        """Raise InputError where vLLM 0.33 refuses to divide the cache by tokens (config/model.py and parallel.py)."""
        if self.dcp < 1 or self.tp % self.dcp:
            raise InputError(f"--dcp {self.dcp} does not divide tp {self.tp}; choose a divisor of {self.tp}")
        if self.kernels != "vllm":
            raise InputError("decode context parallelism (--dcp) is modelled as vLLM's; leave it out, or --kernels")
        for mixer in model.mixers:
            if isinstance(mixer, Latent) and not mixer.expanded and not mixer.sparse_keys:
                continue
            if not isinstance(mixer, Attention) or mixer.window or mixer.indexer:
                raise InputError(
                    f"--dcp is modelled for attention over all tokens alone, and {model.name} has other layers; leave "
                    "it out"
                )
            copies = self.tp // mixer.kv_heads
            if self.dcp > copies or (mixer.heads // mixer.kv_heads) % self.dcp:
                raise InputError(
                    f"--dcp {self.dcp} needs as many ranks with a copy of each of the {mixer.kv_heads} KV heads, and "
                    f"tp {self.tp} has {max(copies, 1)}; raise --tp, or leave it out"
                )

    @property
    def text(self) -> str:
        """Short description."""
        parts = [f"TP{self.tp}"]
        parts += [f"PP{self.pp}"] if self.pp > 1 else []
        parts += [f"DP{self.dp}"] if self.dp > 1 else []
        parts += [f"DCP{self.dcp}"] if self.dcp > 1 else []
        parts += ["EP"] if self.ep else []
        types = self.weights if self.expert_weights in (None, self.weights) else f"{self.weights}+{self.expert_weights}"
        cache = [f"KV {self.cache}"] if self.cache != "bf16" else []
        offload = [] if self.offload is None else [f"KV host {self.offload.host_gib:g} GiB"]
        offload += [f"disk {self.offload.disk_gib:g} GiB"] if self.offload and self.offload.disk_gib else []
        drafted = [f"{self.drafting.method} {self.drafting.tokens}"] if self.drafting else []
        loras = [f"LoRA {self.max_loras} x rank {self.lora_rank}"] if self.max_loras else []
        return " ".join([*parts, types, *cache, *offload, *drafted, *loras])


def stage_ends(layers: int, stages: int) -> list[tuple[int, int]]:
    """The first layer of each pipeline stage, and the one after its last.

    What remains goes to the stages before the last one, as in vLLM 0.33's `get_pp_indices`.
    """
    lengths = [layers // stages] * stages
    for stage in range(layers % stages):
        lengths[-2 - stage] += 1
    starts = [sum(lengths[:stage]) for stage in range(stages + 1)]
    return list(itertools.pairwise(starts))


def graph_sizes(plan: ServingPlan, blackwell: bool) -> tuple[int, ...]:
    """Token counts for which vLLM captures CUDA graphs (vLLM 0.33, config/vllm.py).

    A step is padded to the next one. Experts in MXFP4 are gpt-oss's, whose largest graph has 1,024 tokens.
    """
    if not plan.cuda_graphs:
        return ()
    tokens_per_decode = 1 + (plan.drafting.tokens if plan.drafting else 0)
    engine_tokens = (
        1024
        if plan.of_experts == "mxfp4"
        else min(2 * plan.max_num_seqs * tokens_per_decode, 1024 if blackwell else 512)
    )
    largest = min(plan.graph_tokens or engine_tokens, plan.max_num_batched_tokens)
    return tuple(size for size in (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)) if size <= largest)
