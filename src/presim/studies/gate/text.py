"""Verdicts on budgets: in the terminal, as JSON, as Markdown for a pull request, and as JUnit XML for CI."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from presim.report.rendering import json_text
from presim.report.screen import Title
from presim.studies.gate.budget_check import Gate, Verdict
from presim.units import gib, seconds


def encode(gate: Gate) -> bytes:
    """The verdicts as JSON with sorted keys."""
    return json_text(gate)


def write(gate: Gate, file: IO[str] | None = None) -> None:
    """Print the verdicts."""
    Console(file=file, highlight=False, markup=False, emoji=False).print(render(gate))


def render(gate: Gate) -> RenderableType:
    """The verdicts as something rich can print."""
    lines: list[RenderableType] = [Title(count_kept(gate), _clusters(gate)), Text()]
    for job in gate.jobs:
        mark = ("✓ ", "bold green") if job.passed else ("✗ ", "bold red")
        lines.append(Text.assemble(mark, (job.name, "bold"), "  ", (figures(job), "dim")))
        lines += [Text(f"    {sentence}", "dim" if passed else "red") for sentence, passed in sentences(job)]
    return Group(*lines)


def count_kept(gate: Gate) -> str:
    """How many jobs keep their budgets, in words."""
    return f"{sum(job.passed for job in gate.jobs)} of {len(gate.jobs)} jobs keep their budgets"


def _clusters(gate: Gate) -> str:
    """The clusters of all jobs, each once, in the order of the file."""
    return ", ".join(dict.fromkeys(job.cluster for job in gate.jobs if job.cluster))


def figures(job: Verdict) -> str:
    """Step time and memory, with the change from the baseline."""
    parts = []
    if job.step_time_s is not None:
        parts.append(f"step {seconds(job.step_time_s)}{_change(job.step_time_change_s, seconds)}")
    if job.memory_bytes is not None:
        parts.append(f"memory {gib(job.memory_bytes)}{_change(job.memory_change_bytes, gib)}")
    return ", ".join(parts)


def _change(change: float | None, shown: object) -> str:
    show = shown if callable(shown) else str
    return f" ({'-' if change < 0 else '+'}{show(abs(change))})" if change else ""


def sentences(job: Verdict) -> list[tuple[str, bool]]:
    """The sentences on a job, each with whether its check passed."""
    failed = [(job.failure, False)] if job.failure else []
    return [*failed, *((check.sentence, check.passed) for check in job.checks)]


def markdown(gate: Gate) -> str:
    """A table for a pull request."""
    lines = [
        f"### presim: {count_kept(gate)}",
        "",
        *(["partial: the work was interrupted", ""] if gate.partial else []),
        "| job | cluster | step time | change | memory | change | budget |",
        "|---|---|---|---|---|---|---|",
    ]
    for job in gate.jobs:
        broken = [sentence for sentence, passed in sentences(job) if not passed]
        cells = [
            job.name,
            job.cluster,
            "" if job.step_time_s is None else seconds(job.step_time_s),
            _change(job.step_time_change_s, seconds).strip(" ()"),
            "" if job.memory_bytes is None else gib(job.memory_bytes),
            _change(job.memory_change_bytes, gib).strip(" ()"),
            "kept" if job.passed else "**" + "; ".join(broken) + "**",
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def junit(gate: Gate) -> bytes:
    """JUnit XML: one test case per limit, and one per job for its prediction."""
    cases = [(job, "prediction", job.failure) for job in gate.jobs]
    cases += [(job, check.limit, "" if check.passed else check.sentence) for job in gate.jobs for check in job.checks]
    suite = ElementTree.Element(
        "testsuite", name="presim", tests=str(len(cases)), failures=str(sum(bool(failure) for _, _, failure in cases))
    )
    for job, name, failure in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=job.name, name=name)
        if failure:
            ElementTree.SubElement(case, "failure", message=failure)
    ElementTree.indent(suite)
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"
