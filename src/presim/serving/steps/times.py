"""Step times of an engine: the signatures of a rank's layers, priced once over a grid and interpolated.

Prices come from the same chain as for captured programs. Time that is not GPU work is added as constants with their
sources (`Overheads`).
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from presim.composition.models.decoder_layers import Cached
from presim.composition.models.description import Model
from presim.hardware import Cluster, Gpu
from presim.hardware import constants as calibration
from presim.serving import weight_types
from presim.serving.drafting import drafter, with_passes
from presim.serving.engine_versions import OLD_UNCERTAINTY, has_other_core
from presim.serving.engines.engine import GRID, Limits, StepTimes, Tiers
from presim.serving.kv.pools import apart, has_states
from presim.serving.kv.startup import model_length
from presim.serving.serving_plan import ServingPlan, graph_sizes
from presim.serving.steps import launches, lora, mixer_work, recurrent, stage
from presim.serving.steps.engine_memory import MemoryPlan, lay_out, tiers
from presim.serving.steps.overheads import Overheads, of_engine
from presim.serving.steps.pricer import PricedWork, Pricer
from presim.serving.steps.routed_experts import Routed
from presim.serving.steps.step_work import Reduce, Work

Floats = NDArray[np.float64]

_GRID_TOKENS = (
    1,
    2,
    4,
    8,
    12,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    160,
    192,
    224,
    256,
    320,
    384,
    448,
    512,
    640,
    768,
    896,
    1024,
)


# Share of the shortest attention kernel's time that does not depend on its sequences. With FlashAttention 3, batches of
# decodes and a prompt take 8 to 10 us less than a kernel for each, on an H100 (validation/results/serving-h100.md).
FIXED_SHARE = 0.8
_STEP_WIDTHS = {  # by whose kernels: uncertainty of a step over that of its prices
    "vllm": "serving.step_width_vllm",
    "sglang": "serving.step_width_sglang",
    "trtllm": "serving.step_width_trtllm",
}

TABLES = ("token_ns", "shared_ns", "head_ns", "prefill_ns", "decode_ns")  # of `StepTimes`: device time


@dataclasses.dataclass(frozen=True, eq=False)
class PricedEngine:
    """A model with a plan on GPUs: memory, scheduler limits, step times."""

    model: Model
    plan: ServingPlan
    cluster: Cluster
    memory: MemoryPlan
    limits: Limits
    times: StepTimes
    origins: dict[str, float]  # share of a decoding step's device time by origin of its prices
    uncertainty: float  # relative uncertainty of a decoding step's device time
    overheads: Overheads
    steps: dict[str, str | int | float] | None = None  # where captured steps are from, and their errors; None: composed
    prices: tuple[Path, ...] = ()  # folders with the user's own tables and models, which are asked first


def build(
    model: Model,
    plan: ServingPlan,
    cluster: Cluster,
    overheads: Overheads | None = None,
    prices: tuple[Path, ...] = (),
    priced: PricedWork | None = None,
) -> PricedEngine:
    """Plan the memory, price steps over a grid, and record the origins of the prices.

    ``prices``: folders with the user's own tables and models, as `presim simulate --prices` reads them. ``priced``:
    work that has a price, of a plan that differs in its limits alone; what is priced is added.
    """
    plan.check(model)
    weight_types.check(model, plan, cluster.gpu)
    overheads = overheads or of_engine(plan.kernels)
    memory = lay_out(model, plan, cluster.gpu)
    pricer = Pricer(cluster, plan, overheads, prices, priced)
    limits = _limits(model, plan, memory, tiers(plan, cluster, memory), cluster.gpu)
    computed_model, computed_plan = weight_types.as_computed(model, plan, cluster.gpu)
    tables = _tables(computed_model, computed_plan, pricer)
    fixed_ns = _fixed_ns(model, plan, tables)
    tables["token_ns"] = tables["token_ns"] + fixed_ns
    for name in ("prefill_ns", "decode_ns"):
        tables[name] = tables[name] - fixed_ns
    times = StepTimes(
        **{name: table * overheads.step_scale for name, table in tables.items()},
        attention_fixed_ns=fixed_ns * overheads.step_scale,
        host_ns=overheads.host_us * 1e3,
        host_seq_ns=overheads.host_sequence_us * 1e3,
        back_ns=overheads.back_us * 1e3,
        back_seq_ns=overheads.back_sequence_us * 1e3,
        **launches.tables(model, plan, overheads, cluster.gpu),
        lora_ns=_lora_table(model, plan, pricer) * overheads.step_scale if plan.max_loras else None,
        mask_ns=overheads.mask_row_us * 1e3,
    )
    origins, uncertainty = pricer.rests_on(_decoding(computed_model, computed_plan))
    uncertainty *= calibration.value(_STEP_WIDTHS[plan.kernels])
    if has_other_core(plan.kernels, plan.engine_version):
        uncertainty = max(uncertainty, OLD_UNCERTAINTY)
    return PricedEngine(model, plan, cluster, memory, limits, times, origins, uncertainty, overheads, prices=prices)


def _limits(model: Model, plan: ServingPlan, memory: MemoryPlan, cache_tiers: Tiers, gpu: Gpu) -> Limits:
    longest = model_length(model, plan, memory.pool, memory.blocks, states=has_states(model, plan, gpu))
    sizes = graph_sizes(plan, gpu.architecture == "blackwell")
    return Limits(
        graph_tokens=sizes[-1] if sizes else 0,
        num_gpu_blocks=memory.blocks,
        block_size=memory.pool.block_tokens,
        apart=apart(memory.pool, plan),
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_model_len=longest,
        async_scheduling=plan.async_scheduling,
        policy=plan.policy,
        enable_prefix_caching=plan.prefix_caching,
        pipeline_parallel_size=plan.pp,
        draft_tokens=plan.drafting.tokens if plan.drafting else 0,
        draft_method=plan.drafting.method if plan.drafting else "eagle",
        max_loras=plan.max_loras,
        acceptance=plan.drafting.acceptance if plan.drafting else 0.0,
        scheduler=plan.decides,
        max_prefill_tokens=plan.max_prefill_tokens,
        scheduler_recv_interval=plan.scheduler_recv_interval,
        prefill_schedule_interval=plan.prefill_schedule_interval,
        tiers=cache_tiers,
    )


def _tables(model: Model, plan: ServingPlan, pricer: Pricer) -> dict[str, Floats]:
    """Tables by the fields of `StepTimes`, including the drafter's passes."""
    splits_experts = plan.dp > 1 and plan.pp == 1
    tables = {
        "token_ns": _token_table(model, plan, pricer, "own" if splits_experts else "all"),
        "shared_ns": _token_table(model, plan, pricer, "shared") if splits_experts else np.zeros(1),
        "head_ns": _head_table(model, plan, pricer),
        "prefill_ns": _attention_table(model, plan, pricer, decode=False),
        "decode_ns": _attention_table(model, plan, pricer, decode=True),
    }
    proposes = drafter(model, plan.drafting) if plan.drafting else None
    if plan.drafting is None or proposes is None:
        return tables
    draft_plan = dataclasses.replace(plan, drafting=None, pp=1)
    drafted_tables = _with_drafter(tables["token_ns"], tables["head_ns"], proposes, plan, pricer)
    tables["token_ns"], tables["head_ns"] = drafted_tables
    tables["prefill_ns"] = tables["prefill_ns"] + _attention_table(proposes, draft_plan, pricer, decode=False)
    passes = plan.drafting.tokens * _attention_table(proposes, draft_plan, pricer, decode=True)
    tables["decode_ns"] = tables["decode_ns"] + passes
    return tables


def _with_drafter(
    token_ns: Floats, head_ns: Floats, proposes: Model, plan: ServingPlan, pricer: Pricer
) -> list[Floats]:
    """The target's tables by tokens and by rows with the passes of its drafter added."""
    assert plan.drafting is not None
    draft_plan = dataclasses.replace(plan, drafting=None, pp=1)
    drafts = _token_table(proposes, draft_plan, pricer), _head_table(proposes, draft_plan, pricer)
    return with_passes(token_ns, head_ns, *drafts, plan.drafting.tokens)


def with_drafter(engine: PricedEngine, times: StepTimes) -> StepTimes:
    """Step times of the target alone with its drafter's passes, composed; attention of ``times`` has them already."""
    plan = engine.plan
    proposes = drafter(engine.model, plan.drafting) if plan.drafting else None
    if proposes is None:
        return times
    pricer = Pricer(engine.cluster, plan, engine.overheads, engine.prices)
    nothing = np.zeros_like(times.token_ns), np.zeros_like(times.head_ns)
    token_ns, head_ns = (
        table * engine.overheads.step_scale for table in _with_drafter(*nothing, proposes, plan, pricer)
    )
    return dataclasses.replace(times, token_ns=times.token_ns + token_ns, head_ns=times.head_ns + head_ns)


def with_messages(engine: PricedEngine, times: StepTimes) -> StepTimes:
    """Step times of one pipeline stage alone with its message to the next one, composed."""
    plan = engine.plan
    if plan.pp == 1:
        return times
    pricer, max_tokens = Pricer(engine.cluster, plan, engine.overheads, engine.prices), plan.max_num_batched_tokens
    grid = _grid(max_tokens)
    works = {tokens: stage.to_next_stage(engine.model, plan, tokens) for tokens in grid}
    pricer.price([work for stage_works in works.values() for work in stage_works])
    priced = [pricer.total_ns(works[tokens]) * engine.overheads.step_scale for tokens in grid]
    return dataclasses.replace(times, token_ns=times.token_ns + np.interp(np.arange(max_tokens + 1), grid, priced))


def _fixed_ns(model: Model, plan: ServingPlan, tables: dict[str, Floats]) -> float:
    """Time of a step's attention kernels that its sequences share: vLLM runs one a layer for all of them.

    Others run prompts and decodes apart, as does latent attention.
    """
    if plan.kernels != "vllm" or model.latent is not None:
        return 0.0
    return FIXED_SHARE * float(min(tables["prefill_ns"].min(), tables["decode_ns"].min()))


def backend(cluster: Cluster) -> str:
    """The attention kernels that vLLM takes on the GPU."""
    return "flash3" if cluster.gpu.architecture == "hopper" else "flash"


def _decoding(model: Model, plan: ServingPlan) -> list[Work]:
    """A typical decoding step, for which the result reports the origins of prices."""
    works: list[Work] = []
    for layer, count in stage.layers_of(model, plan):
        works += stage.layer_works(layer, model.hidden, plan, 32) * count
        works += [mixer_work.kernel(mixer, plan, 32, 1, 1024, "flash", decode=True) for mixer in layer.cached] * count
        works += [work for mixer in layer.cached for work in mixer_work.exchange(mixer, plan, 32)] * count
    return [*works, *stage.head(model, plan, 32)]


def _shared(work: Work) -> bool:
    """Whether data-parallel ranks share the work: routed experts and the reduction of their outputs."""
    return isinstance(work, Routed) or (isinstance(work, Reduce) and work.over == "experts")


def _token_table(
    model: Model, plan: ServingPlan, pricer: Pricer, part: Literal["all", "own", "shared"] = "all"
) -> Floats:
    """Times by tokens of a step: priced on the grid, linear in between, padded to CUDA graph sizes."""
    max_tokens = plan.max_num_batched_tokens
    grid = _grid(max_tokens)
    per_token = {
        tokens: [
            (work, count)
            for work, count in stage.stage(model, plan, tokens)
            if part == "all" or _shared(work) == (part == "shared")
        ]
        for tokens in grid
    }
    pricer.price([work for works in per_token.values() for work, _ in works])
    priced = []
    for tokens in grid:
        priced.append(sum(count * pricer.total_ns([work]) for work, count in per_token[tokens]))
    table = np.interp(np.arange(max_tokens + 1), grid, priced)
    sizes = graph_sizes(plan, pricer.cluster.gpu.architecture == "blackwell")
    padded = np.arange(max_tokens + 1)
    if sizes:
        within = padded <= sizes[-1]
        padded[within] = np.array(sizes)[np.searchsorted(sizes, padded[within])]
    return table[np.minimum(padded, max_tokens)]


def _grid(max_tokens: int) -> list[int]:
    """Tokens of a step that are priced; linear in between."""
    return sorted({*(size for size in _GRID_TOKENS if size < max_tokens), *_doubling(1024, max_tokens), max_tokens})


def _doubling(first: int, last: int) -> list[int]:
    sizes = []
    while first < last:
        sizes += [first, first * 3 // 2]
        first *= 2
    return [size for size in sizes if size < last]


def _head_table(model: Model, plan: ServingPlan, pricer: Pricer) -> Floats:
    max_rows = plan.max_num_seqs * (1 + (plan.drafting.tokens if plan.drafting else 0))
    grid = sorted(
        {size for size in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) if size < max_rows} | {max_rows}
    )
    return np.interp(np.arange(max_rows + 1), grid, [pricer.total_ns(stage.head(model, plan, size)) for size in grid])


def _lora_table(model: Model, plan: ServingPlan, pricer: Pricer) -> Floats:
    """Time of the adapters' products by tokens of a step that have an adapter."""
    max_tokens = plan.max_num_batched_tokens
    grid = _grid(max_tokens)
    priced = [
        sum(
            count * pricer.total_ns(lora.products(layer, model.hidden, plan, tokens))
            for layer, count in stage.layers_of(model, plan)
        )
        for tokens in grid
    ]
    return np.interp(np.arange(max_tokens + 1), [0, *grid], [0.0, *priced])


_ROWS = range(min(GRID, 15))  # log2 of sequences or queries: up to 16,384
_COLUMNS = range(min(GRID, 19))  # log2 of keys: up to 262,144


def _attention_table(model: Model, plan: ServingPlan, pricer: Pricer, *, decode: bool) -> Floats:
    """[log2 sequences or queries, log2 keys] table of the stage's attention kernels, scores and states."""
    verified = 1 + (plan.drafting.tokens if plan.drafting else 0)
    table = np.zeros((len(_ROWS), len(_COLUMNS)))
    for layer, count in stage.layers_of(model, plan):
        for mixer in layer.cached:
            table += count * _kernels_ns(mixer, plan, pricer, verified, decode=decode)
        for state in layer.recurrent:
            works = [recurrent.states(state, model.state_type, plan, 1 << row if decode else 1) for row in _ROWS]
            pricer.price([work for row in works for work in row])
            table += count * np.array([[sum(pricer.prices_by_work[work][0] for work in row)] for row in works])
    return table[np.minimum(np.arange(GRID), len(_ROWS) - 1)][:, np.minimum(np.arange(GRID), len(_COLUMNS) - 1)]


def _kernels_ns(mixer: Cached, plan: ServingPlan, pricer: Pricer, verified: int, *, decode: bool) -> Floats:
    """Times of one layer's attention kernel, with an indexer's scores, over the grid."""
    kernels = backend(pricer.cluster)
    works: dict[tuple[int, int], list[Work]] = {}
    for row in _ROWS:
        batch, queries = (1 << row, verified) if decode else (1, 1 << row)
        for column in _COLUMNS:
            keys = 1 << column
            attends = mixer_work.kernel(mixer, plan, batch, queries, keys, kernels, decode=decode)
            scores = mixer_work.scoring(mixer, batch, queries, keys if decode else max(keys, queries))
            sends = mixer_work.exchange(mixer, plan, batch * queries) if decode else []
            works[row, column] = [attends, *scores, *sends]
    pricer.price([work for cell in works.values() for work in cell])
    return np.array(
        [[sum(pricer.prices_by_work[work][0] for work in works[row, column]) for column in _COLUMNS] for row in _ROWS]
    )
