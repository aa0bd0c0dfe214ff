"""One step of an engine by operator: time, share, limit, share of the datasheet's speed, and where a price is from."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from presim.serving import weight_types
from presim.serving.serving_plan import graph_sizes
from presim.serving.steps import mixer_work, recurrent, stage
from presim.serving.steps.pricer import Pricer
from presim.serving.steps.routed_experts import Routed
from presim.serving.steps.step_work import Reduce, Work
from presim.serving.steps.times import PricedEngine, backend
from presim.trace.signatures import Attention, Gemm

_LIMITS = {"latency": "launch", "network": "link", "link": "link", "compute": "compute", "memory": "memory"}


@dataclasses.dataclass(frozen=True)
class StepOperator:
    """All calls of one operator of a step on one GPU."""

    name: str
    calls: int
    us: float  # of all calls
    share: float  # of the step's device time
    limit: str  # compute, memory, launch or link
    light: float  # datasheet time / time
    origin: str  # measured, learned, analytic or guessed


@dataclasses.dataclass(frozen=True)
class DetailedStep:
    """A step and its operators, the longest first."""

    sequences: int
    tokens: int
    context: int  # keys of each sequence
    operators: tuple[StepOperator, ...]
    device_us: float  # of all operators, with the gaps between kernels
    launch_us: float  # of the host, for the kernels
    simulated_us: float  # what the simulation takes for such a step: interpolated, and at least the launches

    @property
    def limit(self) -> str:
        """What the step waits for."""
        return "the host's launches" if self.launch_us > self.device_us else "the device"


def decode_step(engine: PricedEngine, sequences: int, context: int) -> DetailedStep:
    """A step in which so many sequences decode with so many tokens each."""
    sequences = min(max(sequences, 1), engine.limits.max_num_seqs, engine.limits.max_num_batched_tokens)
    sizes = graph_sizes(engine.plan, engine.cluster.gpu.architecture == "blackwell")
    padded = next((size for size in sizes if size >= sequences), sequences)
    works = _works(engine, padded, sequences, context, decode=True)
    simulated_ns = engine.times.step_ns([], [context] * sequences)
    return _step(engine, works, (sequences, sequences, context), simulated_ns, decode=True)


def prefill_step(engine: PricedEngine, prompt: int) -> DetailedStep:
    """A step with the first tokens of one prompt, as many as a step takes."""
    tokens = min(max(prompt, 1), engine.limits.max_num_batched_tokens)
    works = _works(engine, tokens, 1, tokens, decode=False)
    return _step(engine, works, (1, tokens, tokens), engine.times.step_ns([(tokens, tokens)], []), decode=False)


def _works(engine: PricedEngine, tokens: int, sequences: int, keys: int, *, decode: bool) -> Counter[Work]:
    """A step's work on one GPU of the fullest stage, each with its number."""
    model, plan = weight_types.as_computed(engine.model, engine.plan, engine.cluster.gpu)
    works: Counter[Work] = Counter()
    for work, count in stage.stage(model, plan, tokens):
        works[work] += count
    works.update(stage.head(model, plan, sequences))
    queries = 1 if decode else tokens
    for layer, count in stage.layers_of(model, plan):
        kernels: list[Work] = []
        for mixer in layer.cached:
            kernels.append(
                mixer_work.kernel(mixer, plan, sequences, queries, keys, backend(engine.cluster), decode=decode)
            )
            kernels += mixer_work.scoring(mixer, sequences, queries, keys)
            kernels += mixer_work.exchange(mixer, plan, sequences) if decode else []
        for state in layer.recurrent:
            kernels += recurrent.states(state, model.state_type, plan, sequences)
        for work in kernels:
            works[work] += count
    return works


def _step(
    engine: PricedEngine, works: Counter[Work], shape: tuple[int, int, int], simulated_ns: float, *, decode: bool
) -> DetailedStep:
    pricer = Pricer(engine.cluster, engine.plan, engine.overheads, engine.prices)
    pricer.price(list(works))
    scale, gap_ns = engine.overheads.step_scale, engine.overheads.kernel_gap_us * 1e3
    times = {
        work: count * scale * (pricer.prices_by_work[work][0] + (0.0 if isinstance(work, Reduce) else gap_ns))
        for work, count in works.items()
    }
    device_ns = sum(times.values())
    rows = [
        StepOperator(
            name_of(work),
            works[work],
            ns / 1e3,
            ns / device_ns,
            _LIMITS.get(pricer.bounds[work], "launch"),
            min(works[work] * pricer.least_ns(work) / ns, 1.0),
            pricer.prices_by_work[work][1],
        )
        for work, ns in times.items()
        if ns > 0
    ]
    rows.sort(key=lambda row: (-row.us, row.name))
    sequences, tokens, context = shape
    launch_ns = engine.times.launch_ns(tokens, prompts=not decode)
    return DetailedStep(sequences, tokens, context, tuple(rows), device_ns / 1e3, launch_ns / 1e3, simulated_ns / 1e3)


def name_of(work: Work) -> str:
    """An operator in words, with its sizes where several have the same name."""
    if isinstance(work, Reduce):
        return f"{work.kind} over {work.over}, {work.bytes:,} bytes"
    if isinstance(work, Routed):
        return f"experts, {work.top_k} of {work.count}, {work.weights}"
    if isinstance(work, Gemm):
        batch = f"{work.batch} x " if work.batch > 1 else ""
        return f"product {batch}{work.m} x {work.n} x {work.k}, {work.b_dtype or work.dtype}"
    if isinstance(work, Attention):
        window = f", window {work.window}" if work.window else ""
        return f"attention, {work.batch} x {work.q_len} queries, {work.kv_len} keys{window}"
    return str(getattr(work, "operator", "") or type(work).__name__.lower())


def document(engine: PricedEngine, sequences: int, context: int, prompt: int) -> dict[str, Any]:
    """Both steps as plain values."""
    steps = {"decode": decode_step(engine, sequences, context), "prefill": prefill_step(engine, prompt)}
    return {name: {**dataclasses.asdict(step), "limit": step.limit} for name, step in steps.items()}
