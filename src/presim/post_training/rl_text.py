"""The answer of `presim rl` in the terminal."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from presim.post_training.idle_time import by_cause
from presim.post_training.rl_answer import Figures, RlAnswer
from presim.post_training.role_memory import PhaseMemory
from presim.report.rendering import json_text
from presim.units import GIB

_MOST_SHOWN = 20  # placements
_LEAST_SHARE = 0.005  # of all GPU time, from which on a cause is named
_THOUSAND = 1000
_HOUR_S = 3600


def encode(answer: RlAnswer) -> bytes:
    """The answer as JSON with sorted keys."""
    return json_text(answer)


def write(answer: RlAnswer) -> None:
    """Print the answer."""
    Console(highlight=False, markup=False, emoji=False).print(render(answer))


def render(answer: RlAnswer) -> RenderableType:
    """The answer as something rich can print."""
    alternatives: list[RenderableType] = [_alternatives(answer), Text("")] if answer.alternatives else []
    return Group(
        Text(f"{answer.algorithm} on {answer.model}, {answer.placement} ({answer.gpu})"),
        *(Text(f"{pool.name}: {pool.gpus} GPUs, {', '.join(pool.roles)}; {pool.plan}") for pool in answer.pools),
        Text(""),
        Text("\n".join(headline(answer))),
        Text(""),
        _phases(answer),
        Text(""),
        *alternatives,
        _memory(answer),
        Text(""),
        *(Text(f"- {sentence}") for sentence in (*answer.notes, *answer.not_modelled)),
    )


def headline(answer: RlAnswer) -> list[str]:
    """The figures of a step in sentences."""
    figures = answer.figures
    lines = [
        f"Step {figures.step_time_s:,.4g} s ({figures.step_time_low_s:,.4g} to {figures.step_time_high_s:,.4g}), "
        f"{figures.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, {figures.responses_per_s:,.3g} responses/s",
        f"{answer.prompts:,} prompts x {answer.samples} responses of {figures.mean_response:,.0f} tokens on average, "
        f"{figures.longest_response:,} at most; {answer.mini_batches} updates a pass",
        f"Rollout: engines idle {figures.rollout_idle_share:.0%} of it; {figures.rollout_tail_s:,.3g} s from the "
        f"median engine's end to the last response; {figures.preemptions:,.0f} preemptions",
    ]
    if dropped := answer.tokens.get("dropped", 0):
        generated = answer.tokens["generated"]
        lines.append(f"{dropped:,} of {generated:,} generated tokens are of prompts that the filter drops")
    return [*answer.misfit, *lines, *_idle(answer), *_asynchronous(answer), *_costs(figures)]


def _idle(answer: RlAnswer) -> list[str]:
    shares = by_cause(answer.idle)
    if not shares:
        return []
    parts = ", ".join(f"{cause} {share:.1%}" for cause, share in shares.items() if share >= _LEAST_SHARE)
    return [f"GPUs idle {sum(shares.values()):.1%} of their time" + (f": {parts}" if parts else "")]


def _asynchronous(answer: RlAnswer) -> list[str]:
    figures = answer.figures
    if not figures.largest_staleness:
        return []
    return [
        f"Staleness {figures.mean_staleness:.2f} steps on average, {figures.largest_staleness} at most; "
        f"{figures.recomputed_tokens:,.0f} tokens a step are computed again after new weights",
        "Goodput of samples at most so stale: "
        + ", ".join(
            f"{limit.staleness}: {limit.tokens_per_s_per_gpu:,.0f} tokens/s/GPU ({limit.share:.0%})"
            for limit in answer.goodput
        ),
    ]


def _costs(figures: Figures) -> list[str]:
    parts = [f"{figures.step_time_s * _THOUSAND / _HOUR_S:,.4g} h"]
    if figures.kWh is not None:
        parts.append(f"about {figures.kWh * _THOUSAND:,.3g} kWh")
    if figures.money_per_thousand_steps is not None:
        parts.append(f"{figures.money_per_thousand_steps:,.0f} for the GPUs")
    return [f"1,000 steps take {', '.join(parts)}"]


def _phases(answer: RlAnswer) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("pool", "phase"):
        table.add_column(name)
    for name in ("time", "of step"):
        table.add_column(name, justify="right")
    for phase in answer.phases:
        table.add_row(phase.pool, phase.phase, f"{phase.seconds:,.4g} s", f"{phase.share:.1%}")
    return table


def _alternatives(answer: RlAnswer) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("placement (* none at most as stale, on as few GPUs, is faster)")
    for name in ("step", "tokens/s/GPU", "staleness"):
        table.add_column(name, justify="right")
    simulated = [shown for shown in answer.alternatives if shown.step_time_s is not None]
    refused = [shown for shown in answer.alternatives if shown.refusal]
    ranked = sorted(simulated, key=lambda shown: (not shown.is_on_front, shown.step_time_s))
    for shown in ranked[:_MOST_SHOWN]:
        mark = "* " if shown.is_on_front else "  "
        table.add_row(
            f"{mark}{shown.placement}",
            f"{shown.step_time_s:,.4g} s",
            f"{shown.tokens_per_s_per_gpu:,.0f}",
            f"{shown.largest_staleness}",
        )
    estimated = len(answer.alternatives) - len(simulated) - len(refused)
    counts = {
        "more simulated": len(simulated) - _MOST_SHOWN,
        "estimated to be slower": estimated,
        "refused": len(refused),
    }
    summary = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count > 0)
    if summary:
        table.add_row(f"  {summary}", "", "", "")
    return table


def memory_text(phase: PhaseMemory) -> str:
    """What a phase takes of a GPU, and by how much it does not fit."""
    text = f"{phase.total_bytes / GIB:.1f} of {phase.capacity_bytes / GIB:.1f} GiB"
    missing_bytes = phase.total_bytes - phase.capacity_bytes
    return text if phase.fits else f"{text}, does not fit: {missing_bytes / GIB:.1f} too many"


def _memory(answer: RlAnswer) -> Text:
    lines = []
    for phase in answer.memory:
        parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in phase.parts.items())
        lines.append(f"Memory, {phase.phase} on {phase.pool}: {memory_text(phase)} ({parts})")
    return Text("\n".join(lines))
