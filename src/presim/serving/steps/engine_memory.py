"""Memory of an engine: whether the model fits, and the number of KV-cache blocks, computed as vLLM does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.composition.models.decoder_layers import DeltaNet
from presim.composition.models.description import Model
from presim.errors import InputError, MisfitError
from presim.hardware import Cluster, Gpu
from presim.hardware import constants as calibration
from presim.serving.engine_versions import has_other_core, numbers_of
from presim.serving.engines.engine import Tiers
from presim.serving.kv.kv_groups import Pool
from presim.serving.kv.pools import pool_of, state_bytes
from presim.serving.serving_plan import ServingPlan, graph_sizes
from presim.serving.steps.engine_weights import weight_bytes
from presim.serving.steps.profile_run import activation_bytes, has_former_runner
from presim.units import GIB, MIB

# Memory outside PyTorch: buffers of NCCL and the custom all-reduce, cuBLAS workspaces ("non-torch" in vLLM's logs). One
# H100 has 0.13 GiB up to 0.17 and 0.24 to 0.27 in 0.19; ranks of a group 0.55 GiB for two GPUs in 0.11, and 2.06 to
# 2.17 in 0.19, for two and four (llm-d's profiles and accuracy report). The larger value has NCCL's buffers for NVLink
# SHARP. Former NCCL made them only for more than two GPUs (`gpuCount <= 2` in its src/transport/nvls.cc), the one of
# 0.19 from two on. Without NVSwitch there are none: two RTX 5090 have 0.75 to 0.77 GiB in 0.27
# (noonghunna/club-3090#1087, vllm-project/recipes#810). Other vendors: a round value, uncertain.
_BESIDE_ALONE, _BESIDE_ALONE_FORMER = int(0.25 * GIB), int(0.13 * GIB)
_MORE_ALONE = (0, 18)  # version from which one GPU is taken to have the former: 0.18 has no log
_BESIDE_GROUP, _BESIDE_PAIR = int(2.1 * GIB), int(0.55 * GIB)
_BESIDE_UNSWITCHED, _BESIDE_OTHER_GROUP = int(0.76 * GIB), int(1.25 * GIB)
_SHARP_FOR_PAIRS = (0, 17)  # version from which pairs are taken to have them: those between the logs are not measured
_GRAPHS = int(0.6 * GIB)  # private pools of CUDA graphs: vLLM's estimate for a dense model, rounded
_GRAPHS_FIRST, _USUAL_SIZES = int(0.2 * GIB), 51  # few sizes take less: 0.28 GiB for 16 sequences in a log of 2026
# With states, each graph takes more: 1.62 GiB for 86 graphs (vllm#39559), 2.04 for 102 (vllm#48601), 0.09 to 0.17 for 3
# to 5 (noonghunna/club-3090#104, #127, #434). From 0.26 on the former runner's first graph of decodes warms up with
# max_num_batched_tokens of context: 0.89 GiB at 8,192 tokens for 48 heads of 128 elements (vllm#50780 and #52872).
_STATE_GRAPHS_FIRST, _STATE_GRAPH = int(0.1 * GIB), int(18.5 * MIB)
_LONG_WARM_UP, _STATE_TOKEN_BYTES = (0, 26), 117 * 1024 / (48 * 128)
_GRAPHS_COUNTED = (0, 21)  # the first vLLM that takes its estimate of them off the cache, by its log
_OTHER_RUNNER_COUNTS = (0, 29)  # its other model runner, from vLLM's pull request 53306 on (August 2026)


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Bytes on the fullest GPU."""

    total: int
    allowed: int  # gpu_memory_utilization times total memory
    weights: int
    activations: int
    reserved: int  # driver context, communication buffers, CUDA graphs
    pool: Pool
    blocks: int  # pages of the pool
    uncounted: int = 0  # of `reserved`: what is outside of `allowed`, as the engine counts

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


def lay_out(model: Model, plan: ServingPlan, gpu: Gpu) -> MemoryPlan:
    """The memory plan. Raises MisfitError with suggestions if not even one request fits."""
    memory_plan = _lay_out(model, plan, gpu)
    if memory_plan.blocks < 2:
        raise MisfitError(
            f"{model.name} as {plan.text} does not fit a {gpu.name}: weights {memory_plan.weights / GIB:.1f} GiB, "
            f"activations {memory_plan.activations / GIB:.1f}, others "
            f"{(memory_plan.reserved - memory_plan.uncounted) / GIB:.1f} of "
            f"{memory_plan.allowed / GIB:.1f} GiB allowed. " + _advice(model, plan, gpu)
        )
    return memory_plan


def room(model: Model, plan: ServingPlan, gpu: Gpu, longest: int) -> tuple[int, int]:
    """Bytes of a GPU for the model and a request of so many tokens, and those beyond what the engine may use."""
    memory_plan = _lay_out(model, plan, gpu)
    cache_bytes = (memory_plan.pool.pages(longest) + 1) * memory_plan.block
    needed_bytes = memory_plan.weights + cache_bytes
    if plan.kernels != "sglang":  # its fraction is of what is free at the start, for weights and cache alone
        needed_bytes += memory_plan.activations + memory_plan.reserved - memory_plan.uncounted
    return needed_bytes, needed_bytes - memory_plan.allowed


def _lay_out(model: Model, plan: ServingPlan, gpu: Gpu) -> MemoryPlan:
    weights, activations = weight_bytes(model, plan, gpu), activation_bytes(model, plan)
    graphs = _graph_bytes(model, plan)
    started = gpu.context_bytes + _beside_bytes(plan, gpu)
    uncounted = _uncounted(model, plan, gpu, graphs)
    if plan.kernels == "sglang":  # its fraction is of what is free at the start, for weights and cache alone
        allowed = int((gpu.memory_bytes - started) * plan.gpu_memory_utilization)
        free = allowed - weights
    else:
        allowed = int(gpu.memory_bytes * plan.gpu_memory_utilization)
        free = allowed - weights - activations - (started + graphs - uncounted)
    states = state_bytes(model, plan, gpu, free)
    pages = pool_of(model, plan, gpu)
    blocks = plan.num_gpu_blocks
    if blocks is None:
        blocks = max((free - states) // pages.page_bytes, 0)
    reserved = started + graphs + states
    return MemoryPlan(gpu.memory_bytes, allowed, weights, activations, reserved, pages, blocks, uncounted)


def _beside_bytes(plan: ServingPlan, gpu: Gpu) -> int:
    """Bytes outside PyTorch and the context, by the ranks that reduce together."""
    version = None if plan.engine_version is None else numbers_of(plan.engine_version)
    if plan.tp * plan.dp == 1:
        return _BESIDE_ALONE_FORMER if plan.kernels == "vllm" and version and version < _MORE_ALONE else _BESIDE_ALONE
    if plan.kernels != "vllm" or gpu.vendor != "nvidia":
        return _BESIDE_OTHER_GROUP
    if gpu.architecture not in ("hopper", "blackwell") or gpu.default_node.startswith("pcie"):
        return _BESIDE_UNSWITCHED
    is_older = version is not None and version < _SHARP_FOR_PAIRS
    return _BESIDE_PAIR if is_older and plan.tp * plan.dp == 2 else _BESIDE_GROUP


def _graph_bytes(model: Model, plan: ServingPlan) -> int:
    """Bytes of private pools of CUDA graphs, by the number of sizes that are captured."""
    if not plan.cuda_graphs:
        return 0
    if plan.kernels != "vllm":
        return _GRAPHS
    sizes = graph_sizes(plan, blackwell=False)
    if model.recurrent:
        return _state_graph_bytes(model, plan, sizes)
    return int(_GRAPHS_FIRST + (_GRAPHS - _GRAPHS_FIRST) * len(sizes) / _USUAL_SIZES)


def _state_graph_bytes(model: Model, plan: ServingPlan, sizes: Sequence[int]) -> int:
    """Bytes of CUDA graphs of a model with states: graphs between attention of all sizes, and whole ones of decodes."""
    decode_tokens = plan.max_num_seqs * (1 + (plan.drafting.tokens if plan.drafting else 0))
    count = len(sizes) + sum(size <= decode_tokens for size in sizes)
    first_bytes = _STATE_GRAPHS_FIRST
    if has_former_runner(model, plan) and numbers_of(plan.engine_version or "") >= _LONG_WARM_UP:
        widths = [mixer.value_heads * mixer.value_dim for mixer in model.recurrent if isinstance(mixer, DeltaNet)]
        warm_up_bytes = plan.max_num_batched_tokens * _STATE_TOKEN_BYTES * max(widths, default=0) / plan.tp
        first_bytes = max(first_bytes, int(warm_up_bytes))
    return first_bytes + max(count - 2, 0) * _STATE_GRAPH


def _uncounted(model: Model, plan: ServingPlan, gpu: Gpu, graphs: int) -> int:
    """Bytes that vLLM does not take off its share: the context at V1's first look, and the graphs of older versions.

    In logs of 0.11 and of 2026 the cache is exactly the share less weights, activations and buffers outside PyTorch. V0
    counts the context with the buffers (log of 0.6.4 in vllm-project/vllm#10517).
    """
    if plan.kernels != "vllm":
        return 0
    context_bytes = 0 if has_other_core("vllm", plan.engine_version) else gpu.context_bytes
    return context_bytes + (0 if counts_graphs(model, plan) else graphs)


def counts_graphs(model: Model, plan: ServingPlan) -> bool:
    """Whether vLLM takes an estimate of its CUDA graphs off the cache."""
    if plan.engine_version is None:
        return True
    version = numbers_of(plan.engine_version)
    return version >= _GRAPHS_COUNTED and (version >= _OTHER_RUNNER_COUNTS or has_former_runner(model, plan))


MOST_BLOCKS = 20_000_000  # outside the GPU: what a simulation keeps in memory


def tiers(plan: ServingPlan, cluster: Cluster, memory: MemoryPlan) -> Tiers:
    """Tier sizes of one data-parallel rank in host memory and on disk, with load times per block.

    Each GPU loads its part of a block over its own link; the GPUs of a node share its disks.
    """
    if plan.offload is None:
        return Tiers()
    room, node = plan.offload, cluster.node
    of_node_gib = room.host_gib * min(node.gpus / plan.gpus, 1.0)  # an engine may span nodes
    if of_node_gib * GIB > node.host_memory_bytes:
        raise InputError(
            f"{of_node_gib:,.0f} GiB of KV blocks in a node's memory exceed the "
            f"{node.host_memory_bytes / GIB:,.0f} GiB that {node.name} has; use less of --kv-host"
        )
    block_bytes = memory.block * plan.tp * plan.pp
    host, disk = (int(gib * GIB / plan.dp // block_bytes) for gib in (room.host_gib, room.disk_gib))
    if max(host, disk) > MOST_BLOCKS:
        raise InputError(
            f"{max(host, disk):,} KV blocks outside the GPU exceed the limit of {MOST_BLOCKS:,} for simulation; use "
            "a larger --block-size or less capacity"
        )
    host_bytes = room.host_gbps * 1e9 if room.host_gbps else bytes_from_host_per_s(cluster)
    return Tiers(
        host,
        disk,
        round(memory.block / host_bytes * 1e9),
        round(block_bytes / (room.disk_gbps * 1e9) * 1e9),
        tier_latency_ns(),
    )


def bytes_from_host_per_s(cluster: Cluster) -> float:
    """Bytes/s of scattered blocks from a node's memory to one GPU."""
    return calibration.value("serving.paged_copies") * max(cluster.pcie_bytes_per_s, cluster.gpu.c2c_bytes_per_s)


def tier_latency_ns() -> int:
    """Time to start copies of a request's blocks and to see their end."""
    return round(calibration.value("serving.tier_latency_ns"))


def _advice(model: Model, plan: ServingPlan, gpu: Gpu) -> str:
    """Suggestions to make the model fit: more ranks, smaller weights, another GPU."""
    from presim.hardware import catalogue

    options = []
    for tp in (2, 4, 8):
        wider = dataclasses.replace(plan, tp=tp)
        if tp > plan.tp and all(heads % tp == 0 for heads in model.heads) and _lay_out(model, wider, gpu).blocks >= 2:
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
        tp = next((tp for tp in (8, 4, 2) if all(heads % tp == 0 for heads in model.heads)), 1)
        for pp in (2, 4, 8, 16):
            if _lay_out(model, dataclasses.replace(plan, tp=tp, pp=pp), gpu).blocks >= 2:
                return f"Use --tp {tp} --pp {pp}"
    return "Options that fit: " + ", or ".join(options) if options else "Use a smaller model, or more and larger GPUs"
