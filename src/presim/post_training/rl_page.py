"""The answer of `presim rl` as one self-contained HTML page, with a picture of pools over time."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from presim.post_training.rl_answer import RlAnswer
from presim.post_training.rl_text import headline, memory_text
from presim.report.palette import css_classes
from presim.report.rendering import template
from presim.system.files import write_file
from presim.units import GIB, percent, seconds

_LEAST_LABEL = 0.06  # share of the picture's width from which on a phase has room for its name


@dataclasses.dataclass(frozen=True)
class Block:
    """A phase in the picture."""

    css: str
    offset: float  # percent
    width: float
    label: str
    title: str


def write(answer: RlAnswer, path: str | os.PathLike[str]) -> None:
    """Write the page."""
    write_file(path, render(answer).encode())


def render(answer: RlAnswer) -> str:
    """The page."""
    phases = list(dict.fromkeys(span.phase for span in answer.timeline))
    classes = dict(zip(phases, css_classes(phases)))
    return template(Path(__file__).with_name("page.html.jinja")).render(
        title=f"{answer.algorithm} on {answer.model}",
        subtitle=f"{answer.placement} ({answer.gpu})",
        lines=headline(answer),
        pools=[(pool.name, f"{pool.gpus} GPUs: {', '.join(pool.roles)}; {pool.plan}") for pool in answer.pools],
        tracks=[(pool.name, _track(answer, pool.name, classes)) for pool in answer.pools],
        legend=[(classes[phase], phase) for phase in phases],
        end=seconds(max((span.end_s for span in answer.timeline), default=0.0)),
        rows=[(phase.pool, phase.phase, seconds(phase.seconds), percent(phase.share)) for phase in answer.phases],
        idle=[(idle.pool, idle.cause, seconds(idle.seconds), percent(idle.share)) for idle in answer.idle],
        memory=[
            (phase.pool, phase.phase, memory_text(phase),
             ", ".join(f"{name} {size / GIB:.1f}" for name, size in phase.parts.items()))
            for phase in answer.memory
        ],
        notes=[*answer.notes, *answer.not_modelled],
    )  # fmt: skip


def _track(answer: RlAnswer, pool: str, classes: dict[str, str]) -> list[Block]:
    end_s = max((span.end_s for span in answer.timeline), default=0.0) or 1.0
    blocks = []
    for span in answer.timeline:
        if span.pool == pool:
            share = (span.end_s - span.start_s) / end_s
            took = seconds(span.end_s - span.start_s)
            label = span.phase if share >= _LEAST_LABEL else ""
            title = f"{span.phase}, step {span.step + 1}: {took}"
            blocks.append(Block(classes[span.phase], 100 * span.start_s / end_s, 100 * share, label, title))
    return blocks
