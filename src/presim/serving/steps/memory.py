"""Memory of an engine: whether the model fits, and the number of KV-cache blocks, computed as vLLM does."""

from __future__ import annotations

import dataclasses
import math

from presim import calibration
from presim.errors import InputError
from presim.hardware import Cluster, Gpu
from presim.serving.drafting import drafter
from presim.serving.engines.engine import Tiers
from presim.serving.kv.groups import Pool
from presim.serving.kv.pools import pool_of, state_bytes
from presim.serving.model import Model
from presim.serving.plan import AUTO_LENGTH, WEIGHT_BYTES, Plan
from presim.serving.steps.lora import adapter_bytes
from presim.units import GIB

# Memory outside PyTorch: buffers of NCCL and the custom all-reduce, cuBLAS workspaces. vLLM calls it "non-torch"
# memory; its logs on H100s show 0.1 to 0.3 GiB on one GPU and 1 to 2 GiB with NCCL. Round values, uncertain.
_BESIDE_ALONE = int(0.25 * GIB)
_BESIDE_GROUP = int(1.25 * GIB)
_INDEXER_LOGITS = 512 << 20  # vLLM 0.33's VLLM_SPARSE_INDEXER_MAX_LOGITS_MB
_SPARSE_TOKENS = 5  # its sparse_mla_prefill_workspace_factor: so many times max_model_len tokens are unpacked at once
_GRAPHS = int(0.6 * GIB)  # private pools of CUDA graphs: vLLM's estimate for a dense model, rounded


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Bytes on the fullest GPU."""

    total: int
    allowed: int  # gpu_memory_utilization times total memory
    weights: int
    activations: int
    beside: int  # driver context, communication buffers, CUDA graphs
    pool: Pool
    blocks: int  # pages of the pool

    @property
    def block(self) -> int:
        """Bytes of one page."""
        return self.pool.page_bytes

    def tokens(self, longest: int) -> int:
        """Tokens that the engine's log says its cache holds, with requests of ``longest`` tokens at most."""
        return self.pool.tokens(self.blocks, longest)

    @property
    def cache(self) -> int:
        """Bytes of the KV cache."""
        return self.blocks * self.block


def weight_bytes(model: Model, plan: Plan) -> int:
    """Weights of one rank of the fullest stage, the slots of LoRA adapters with them."""
    layers = math.ceil(model.layers / plan.pp) / model.layers
    dense = model.dense_parameters * layers / plan.tp * WEIGHT_BYTES[plan.weights]
    experts = model.expert_parameters * layers / (plan.tp * plan.dp) * WEIGHT_BYTES[plan.of_experts]
    ends = model.embedding_parameters / plan.tp * 2 / (1 if plan.pp == 1 else 2)
    proposes = _drafter(model, plan)
    beside = 0
    if proposes is not None:
        beside = weight_bytes(proposes, dataclasses.replace(plan, drafting=None, pp=1, max_loras=0))
        shared = plan.drafting is not None and plan.drafting.model is None  # embedding and logits are the model's own
        beside -= int(proposes.embedding_parameters / plan.tp * 2) if shared else 0
    return int(dense + experts + ends) + _absorbed_bytes(model, plan) + beside + adapter_bytes(model, plan)


def _absorbed_bytes(model: Model, plan: Plan) -> int:
    """16-bit copies of latent attention's up-projections, which decodes multiply with queries and outputs instead."""
    latent = model.latent
    if latent is None or plan.weights == "bf16":
        return 0
    layers = math.ceil(model.layers / plan.pp)
    return 2 * layers * model.heads // plan.tp * (latent.nope + latent.value) * latent.rank


def _drafter(model: Model, plan: Plan) -> Model | None:
    return drafter(model, plan.drafting) if plan.drafting else None


def activation_bytes(model: Model, plan: Plan) -> int:
    """Peak activation bytes of vLLM's profiling run.

    Max_num_batched_tokens in one layer, fp32 logits of max_num_seqs.
    """
    tokens = plan.max_num_batched_tokens
    widest = 2 * model.width / plan.tp
    if model.experts is not None:
        routed = model.experts.chosen * (2 * model.experts.width / (1 if plan.ep else plan.tp) + model.hidden)
        widest = max(widest, routed / (plan.tp if plan.ep else 1))
    layer = tokens * (4 * model.hidden + widest * 1.5) * 2
    logits = plan.max_num_seqs * model.vocabulary * (2 + 4 + 4)
    return int(max(layer, logits)) + _sparse_workspace(model, plan)


def _sparse_workspace(model: Model, plan: Plan) -> int:
    """Of sparse attention: unpacked keys and values of prompts in 16 bits, and the indexer's scores."""
    if model.latent is None or model.indexer is None:
        return 0
    longest = model.longest if plan.max_model_len in (None, AUTO_LENGTH) else plan.max_model_len
    return 2 * _SPARSE_TOKENS * longest * (model.latent.rank + model.latent.rope) + _INDEXER_LOGITS


def lay_out(model: Model, plan: Plan, gpu: Gpu) -> MemoryPlan:
    """The memory plan. Raises InputError with suggestions if not even one request fits."""
    found = _lay_out(model, plan, gpu)
    if found.blocks < 2:
        raise InputError(
            f"{model.name} as {plan.text} does not fit a {gpu.name}: weights {found.weights / GIB:.1f} GiB, "
            f"activations {found.activations / GIB:.1f}, others {found.beside / GIB:.1f} of "
            f"{found.allowed / GIB:.1f} GiB allowed. " + _advice(model, plan, gpu)
        )
    return found


def _lay_out(model: Model, plan: Plan, gpu: Gpu) -> MemoryPlan:
    weights, activations = weight_bytes(model, plan), activation_bytes(model, plan)
    graphs = _GRAPHS if plan.cuda_graphs else 0
    started = gpu.context_bytes + (_BESIDE_GROUP if plan.gpus > 1 else _BESIDE_ALONE)
    if plan.kernels == "sglang":  # its fraction is of what is free at the start, for weights and cache alone
        allowed = int((gpu.memory_bytes - started) * plan.gpu_memory_utilization)
        free = allowed - weights
    else:
        allowed = int(gpu.memory_bytes * plan.gpu_memory_utilization)
        free = allowed - weights - activations - started - graphs
    states = state_bytes(model, plan, gpu, free)
    pages = pool_of(model, plan, gpu)
    blocks = plan.num_gpu_blocks
    if blocks is None:
        blocks = max((free - states) // pages.page_bytes, 0)
    return MemoryPlan(gpu.memory_bytes, allowed, weights, activations, started + graphs + states, pages, blocks)


_MOST_BLOCKS = 20_000_000


def tiers(plan: Plan, cluster: Cluster, memory: MemoryPlan) -> Tiers:
    """Tier sizes of one data-parallel rank in host memory and on disk, with load times per block.

    Each GPU loads its part of a block over its own link; the GPUs of a node share its disks.
    """
    if plan.offload is None:
        return Tiers()
    room = plan.offload
    whole = memory.block * plan.tp * plan.pp
    host, disk = (int(gib * GIB / plan.dp // whole) for gib in (room.host_gib, room.disk_gib))
    if max(host, disk) > _MOST_BLOCKS:
        raise InputError(
            f"{max(host, disk):,} KV blocks outside the GPU exceed the limit of {_MOST_BLOCKS:,} for simulation; use "
            "a larger --block-size or less capacity"
        )
    host_bytes = room.host_gbps * 1e9 if room.host_gbps else calibration.value("serving.paged_copies") * max(
        cluster.pcie_bytes_per_s, cluster.gpu.c2c_bytes_per_s
    )  # fmt: skip
    return Tiers(
        host,
        disk,
        round(memory.block / host_bytes * 1e9),
        round(whole / (room.disk_gbps * 1e9) * 1e9),
        round(calibration.value("serving.tier_latency_ns")),
    )


def _advice(model: Model, plan: Plan, gpu: Gpu) -> str:
    """Suggestions to make the model fit: more ranks, smaller weights, another GPU."""
    from presim.hardware import catalogue

    options = []
    for tp in (2, 4, 8):
        wider = dataclasses.replace(plan, tp=tp)
        if tp > plan.tp and model.heads % tp == 0 and _lay_out(model, wider, gpu).blocks >= 2:
            options.append(f"--tp {tp}")
            break
    if plan.weights == "bf16" and _lay_out(model, dataclasses.replace(plan, weights="fp8"), gpu).blocks >= 2:
        options.append("--weights fp8")
    if (
        plan.weights != "fp4"
        and gpu.peak("fp4")
        and _lay_out(model, dataclasses.replace(plan, weights="fp4"), gpu).blocks >= 2
    ):
        options.append("--weights fp4")
    for name in ("h200", "b200", "b300"):
        other = catalogue.gpu(name)
        if other.memory_bytes > gpu.memory_bytes and _lay_out(model, plan, other).blocks >= 2:
            options.append(f"--gpu {name}")
            break
    if not options:
        tp = next((tp for tp in (8, 4, 2) if model.heads % tp == 0), 1)
        for pp in (2, 4, 8, 16):
            if _lay_out(model, dataclasses.replace(plan, tp=tp, pp=pp), gpu).blocks >= 2:
                return f"Use --tp {tp} --pp {pp}"
    return "Options that fit: " + ", or ".join(options) if options else "Use a smaller model, or more and larger GPUs"
