"""Compares the order of plans by composed graphs and by Megatron's captures with published sweeps over plans.

    python validation/framework_choices.py TABLE [--only WORD]

TABLE has the columns of `presim validate`; its sweeps are those of `choices.py` whose models are GPTs trained by
Megatron-DeepSpeed. Each plan is priced twice from the row alone, as `presim search` does: composed, and from the blocks
of Megatron. Writes `results/framework-choices.md`; sweeps that are in it already and are not compared again stay.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from choices import PLAN, SAME, Group, Run, middle, name_of, source_of
from presim.cli.script import sentences
from presim.composition.plan import Plan
from presim.errors import InputError, PresimError
from presim.evaluation.options import EvaluationOptions
from presim.studies.validation.cases import Case, read_cases
from presim.studies.validation.gpus import gpu_of
from presim.verbs.compose import compose_and_evaluate
from presim.verbs.compose_framework import capture_plan_and_evaluate

RESULT = Path(__file__).parent / "results" / "framework-choices.md"
ROWS = RESULT.with_suffix(".json")
WAYS = ("composed", "megatron")
FEWEST = 4  # plans of a sweep


def sweeps(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Rows of each sweep by its name, in the order of the table."""
    rows: dict[str, list[Case]] = collections.defaultdict(list)
    for case in cases:
        if not case.text("framework").startswith("Megatron-DeepSpeed") or not case.text("model").startswith("GPT "):
            continue
        if case.text("step_time_s") and case.text("global_batch"):
            same = (source_of(case.row), *(case.row.get(name, "") for name in SAME))
            rows[name_of(same)].append(case)
    return {name: of for name, of in rows.items() if len({_plan_key(case) for case in of}) >= FEWEST}


def _plan_key(case: Case) -> tuple[str, ...]:
    return tuple(case.row.get(name, "") for name in PLAN)


def config_of(case: Case) -> dict[str, Any]:
    """The row's model as a Hugging Face config."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": case.count("hidden"),
        "n_layer": case.count("n_layers"),
        "n_head": case.count("n_heads"),
        "n_positions": case.count("seq_len"),
        "vocab_size": case.count("vocab"),
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


def plan_of(case: Case) -> Plan:
    """The row's plan: gradients are reduced after the backward pass, and layers recomputed, as the sweeps say."""
    return Plan(
        sequence=case.count("seq_len"),
        micro_batch=case.count("micro_batch"),
        global_batch=case.count("global_batch"),
        tensor=case.count("tp", 1),
        pipeline=case.count("pp", 1),
        data_style="ddp",
        overlap=False,
        recompute="full" if case.text("act_ckpt").startswith("full") else "none",
    )


FIELDS = (
    *("sequence", "micro_batch", "global_batch", "tensor", "pipeline", "sequence_parallel", "data_style", "overlap"),
    "recompute",
)


def predicted_s(case: Case, way: str, config: Path) -> float:
    """Step time by one of the ways.

    Raises:
        InputError: the plan has none, with the reason.
    """
    options = EvaluationOptions(gpu=gpu_of(case), world_size=case.count("n_gpus"))
    if way == "composed":
        result = compose_and_evaluate(str(config), plan_of(case), options).result
    else:
        result = capture_plan_and_evaluate(str(config), plan_of(case), FIELDS, options).result
    if result.step_time_s is None:
        raise InputError(f"{case.text('id')}: no step time ({result.exit})")
    return result.step_time_s


def rows_of(cases: Sequence[Case], folder: Path) -> list[dict[str, Any]]:
    """Rows of one sweep: the plan, its published step time, and the step times by each way."""
    rows = []
    for case in cases:
        config = folder / "config.json"
        config.write_text(json.dumps(config_of(case)))
        try:
            times = {way: predicted_s(case, way, config) for way in WAYS}
        except PresimError as error:
            print(f"{case.text('id')}: {error}", file=sys.stderr)
            continue
        row = {"plan": _plan_key(case), "published": float(case.text("step_time_s")), **times}
        print(row, flush=True)
        rows.append(row)
    return rows


def group(name: str, rows: Sequence[Mapping[str, Any]], way: str) -> Group:
    """A sweep with the predictions of one way."""
    plans = collections.defaultdict(list)
    for row in rows:
        plans[tuple(row["plan"])].append(Run(row["published"], row[way]))
    return Group("", name, [middle(runs) for runs in plans.values()])


def page(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The result as a page."""
    lines = [
        "# Choosing a plan: composed graphs beside Megatron's captures",
        "",
        f"{datetime.date.today()}, by `python validation/framework_choices.py`, on a machine without GPUs. Sweeps "
        "were published of Megatron-DeepSpeed on A100; captures are of today's Megatron-core with "
        "Transformer Engine, gradients reduced after the backward pass and layers recomputed, as in the sweeps.",
        "",
        "| sweep | plans | tau composed | tau Megatron | regret composed | regret Megatron | error composed | "
        "error Megatron |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, of in rows.items():
        groups = [group(name, of, way) for way in WAYS]
        errors = [statistics.median(abs(row[way] / row["published"] - 1) for row in of) for way in WAYS]
        cells = [f"{each.tau:+.2f}" for each in groups] + [f"{each.regret:.1%}" for each in groups]
        cells += [f"{error:.1%}" for error in errors]
        lines.append(f"| {name} | {len(groups[0].runs)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compare, and write the page after each sweep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", default="", metavar="WORD", help="sweeps whose name contains it")
    options = parser.parse_args()
    named = {name: of for name, of in sweeps(read_cases(options.table)).items() if options.only in name}
    if not named:
        raise InputError(f"no sweep of {options.table} contains {options.only!r}; see `choices.py` for their names")
    results = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name, cases in named.items():
            rows = rows_of(cases, Path(folder))
            if len(rows) > 1:
                results[name] = rows
                ROWS.write_text(json.dumps(results, indent=1) + "\n")
                RESULT.write_text(page(results))


if __name__ == "__main__":
    with sentences():
        main()
