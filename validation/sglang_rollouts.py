"""Fits how much longer steps of SGLang 0.4.6 take than those of 0.5, and judges it by leaving rollouts out.

    python validation/sglang_rollouts.py TABLE

Three rollouts of trainers that install SGLang 0.4.6 are published with the mean length of their responses. TABLE has
those of verl; RLinf's own is beside verl's in its compare_with_verl.rst, with 64 requests at once on an engine of one
GPU (qwen2.5-1.5b-grpo-megatron.yaml, commit 298084c8). Writes `results/sglang-rollouts.md`.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.cli.script import sentences
from presim.errors import InputError
from presim.post_training.build import build_job
from presim.post_training.rl_answer import answer
from presim.post_training.rl_loop import simulate
from presim.studies.validation.case_tables import read_table
from presim.system.files import write_file
from rl_steps import cluster_of, request_of

RESULT = Path(__file__).parent / "results" / "sglang-rollouts.md"
_RLINF_ENGINE = {"kernels": "sglang", "gpu_memory_utilization": 0.55, "tp": 1, "max_num_seqs": 64}
# name: row of the table, published seconds in its place, fields in place of the row's
_ROLLOUTS: dict[str, tuple[str, float | None, dict[str, Any]]] = {
    "verl with Megatron, 1.5B": ("rlinf-1.5b-1", None, {}),
    "verl with FSDP, 7B": ("rlinf-verl-7b-64", None, {}),
    "RLinf with Megatron, 1.5B": ("rlinf-1.5b-1", 266.08, {"controller": "none", "engine": _RLINF_ENGINE}),
}


@dataclasses.dataclass(frozen=True)
class Rollout:
    """A published rollout beside that of engines at the speed of SGLang 0.5."""

    name: str
    measured_s: float
    simulated_s: float
    fixed_s: float = 0.0  # of the trainer's controller, within both

    @property
    def scale(self) -> float:
        """How much longer the engines took."""
        return (self.measured_s - self.fixed_s) / (self.simulated_s - self.fixed_s)


def errors_left_out(rollouts: Sequence[Rollout]) -> list[float]:
    """Relative error of each rollout with the median scale of the others."""
    errors = []
    for rollout in rollouts:
        scale = statistics.median(other.scale for other in rollouts if other is not rollout)
        errors.append((rollout.fixed_s + scale * (rollout.simulated_s - rollout.fixed_s)) / rollout.measured_s - 1)
    return errors


def _rollout(name: str, rows: Mapping[str, Mapping[str, str]]) -> Rollout:
    row_id, measured_s, fields = _ROLLOUTS[name]
    if row_id not in rows:
        raise InputError(f"the table has no row {row_id!r}; name another table")
    row = rows[row_id]
    request = dataclasses.replace(request_of(row), sglang_release="0.5", **fields)
    built = build_job(request, cluster_of(row))
    phases = answer(built, simulate(built.job, built.prices)).phases
    fixed_s = built.prices.controller.rollout_s
    simulated_s = sum(phase.seconds for phase in phases if phase.phase == "rollout") + fixed_s
    return Rollout(name, measured_s or float(row["rollout_time_s"]), simulated_s, fixed_s)


def page(rollouts: Sequence[Rollout]) -> str:
    """The results as Markdown."""
    errors = errors_left_out(rollouts)
    scale = statistics.median(rollout.scale for rollout in rollouts)
    lines = [
        "# Rollouts with SGLang 0.4.6",
        "",
        f"{datetime.date.today()}, by `python validation/sglang_rollouts.py TABLE`. Trainers of 2025 that install",
        f"SGLang 0.4.6 take longer to generate than engines at the speed of 0.5, by {scale:.2f} times in the median.",
        "An error is that with the median factor of the other rollouts. Lengths have the published mean and the spread",
        "that [published steps](rl-steps.md) assume.",
        "",
        "| rollout | measured | at the speed of 0.5 | factor | error with the others' factor |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {rollout.name} | {rollout.measured_s:.1f} s | {rollout.simulated_s:.1f} s | {rollout.scale:.2f} | "
        f"{error:+.0%} |"
        for rollout, error in zip(rollouts, errors)
    ]
    middle = statistics.median(map(abs, errors))
    return "\n".join([*lines, "", f"Median absolute error: {middle:.0%}.", ""])


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table")
    arguments = parser.parse_args()
    table = read_table(Path(arguments.table), ("id", "rollout_time_s"), "a published rollout has")
    rows = {row["id"]: row for row in table}
    rollouts = [_rollout(name, rows) for name in _ROLLOUTS]
    for rollout in rollouts:
        print(rollout, rollout.scale, flush=True)
    write_file(RESULT, page(rollouts).encode())


if __name__ == "__main__":
    with sentences():
        main()
