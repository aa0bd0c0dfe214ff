"""Compares published runs of torchtitan and of Hugging Face's layers with `presim compose --framework` of their plans.

    python validation/trainer_plans.py TABLE [--only ID,ID...] [--family WORD] [--each N]

TABLE has the columns of `presim validate`. The plan, precision, compilation and recomputation are taken from each row;
the rest is at the defaults. Two rows of each framework, model and GPU are tried, unless ``--each`` says more. Rows that
are in the result already and are not named by ``--only`` stay. Errors of whole captures are those of
`results/predictions.csv`. Writes `results/trainer-plans.md`; the file of the same name with `.json` keeps the rows.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import PresimError
from presim.evaluation.options import EvaluationOptions
from presim.result import Result
from presim.studies.validation.case_tables import read_table
from presim.studies.validation.cases import CannotBuildError, Case, read_cases
from presim.studies.validation.gpus import gpu_of
from presim.verbs.compose_framework import capture_plan_and_evaluate
from presim_study.published_plans import Row, error_of, step_times
from presim_study.trainer_plans import TrainerRun, run_of

RESULT = Path(__file__).parent / "results" / "trainer-plans.md"
ROWS = RESULT.with_suffix(".json")
WHOLE = RESULT.with_name("predictions.csv")
FAMILIES = ("llm-foundry", "torchtitan", "AutoModel", "torchtune", "litgpt", "HF ")

_HEADINGS = (
    *("row", "run", "framework", "published", "predicted", "error"),
    *("whole capture", "inside", "memory", "published", "time"),
)
KNOWN = """Where plans differ from the programs of whole captures:

- llm-foundry's rows are of 2023, with FlashAttention 1 or Triton's kernel. MPT is composed as GPT-2's layers with
  `--attention flash`, which is FlashAttention 2. With PyTorch's memory-efficient kernel in its place, as whole captures
  have it, llmf-091 takes 133.6 s (+3.3 %) for 86.4 s.
- torchtitan 0.3 keeps FP8 products in selective recomputation. The version of June 2025 computed them again.
- AutoModel's kernels are Transformer Engine's, and torchtune's layers are compiled. Hugging Face's are eager here.
- litgpt computes its loss in chunks, and transformers at once.
- Rows of llm-foundry without memory, and torchtitan's, were composed earlier; compiled steps took minutes.
"""


def predicted(case: Case) -> dict[str, object]:
    """A row of the result.

    Raises:
        PresimError: the row has no plan here, or the framework refuses it.
    """
    run, options = run_of(case), EvaluationOptions(gpu=gpu_of(case), world_size=case.count("n_gpus", 1))
    begin_s, cpu_s = time.monotonic(), _cpu_s()
    with tempfile.TemporaryDirectory() as folder:
        result = capture_plan_and_evaluate(
            _model_of(run, Path(folder)), run.plan, ["sequence"], options, framework=run.framework,
            overrides=run.arguments,
        ).result  # fmt: skip
    return {
        "family": family_of(case),
        "run": f"{case.text('model')}, {case.text('n_gpus')} {gpu_of(case)}, {_plan_text(case)}",
        "framework": run.framework,
        **({} if run.memory_alone else step_times(case, result)),
        **_memory(case, result),
        "took_s": time.monotonic() - begin_s,
        "cpu_s": _cpu_s() - cpu_s,
    }


def _cpu_s() -> float:
    import resource

    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _model_of(run: TrainerRun, folder: Path) -> str:
    if isinstance(run.model, str):
        return run.model
    (folder / "config.json").write_text(json.dumps(run.model))
    return str(folder / "config.json")


def _memory(case: Case, result: Result) -> dict[str, object]:
    published, kind = case.measured_memory()
    memory = result.memory
    peak = memory.peak_reserved_bytes if kind == "reserved" or published is None else memory.peak_allocated_bytes
    if result.exit == "out_of_memory":
        raise CannotBuildError("memory: predicted to run out")
    return {"memory_gib": peak / 2**30, "memory_kind": kind, "published_gib": published}


def _plan_text(case: Case) -> str:
    words = [case.text("precision"), f"{case.text('seq_len')} tokens x {case.text('micro_batch')}"]
    degrees = [f"{name.upper()} {case.text(name)}" for name in ("tp", "pp", "cp", "ep") if case.count(name, 1) > 1]
    return ", ".join([*words, *degrees, *(["recomputed"] if case.text("act_ckpt").startswith("full") else [])])


def family_of(case: Case) -> str:
    """The framework's short name; empty: of none that is compared here."""
    return next((name for name in FAMILIES if name in case.text("framework")), "").strip()


def chosen(cases: Sequence[Case], wanted: set[str], family: str, each: int) -> Iterator[Case]:
    """The rows to try: those named, or so many of each framework, model and GPU, the fewest samples first."""
    groups: dict[tuple[str, ...], list[Case]] = collections.defaultdict(list)
    for case in cases:
        if case.id in wanted or (not wanted and family_of(case) and family in family_of(case)):
            precision = case.text("precision") + case.text("sharding")[:14]
            groups[(family_of(case), case.text("model"), case.text("gpu"), precision)].append(case)
    spread = [group if wanted else _spread(group, each) for group in groups.values()]
    for depth in range(max(map(len, spread), default=0)):
        yield from (group[depth] for group in spread if depth < len(group))


def _spread(group: Sequence[Case], number: int) -> list[Case]:
    """Rows at equal distances in the order of GPUs and tokens, the ends first."""
    ordered = sorted(group, key=lambda case: (case.count("n_gpus", 1), case.count("seq_len", 0)))
    if number >= len(ordered) or number < 2:
        return ordered[:number]
    places = [round(index * (len(ordered) - 1) / (number - 1)) for index in range(number)]
    return [ordered[place] for place in dict.fromkeys((places[-1], places[0], *places))]


def page(rows: Mapping[str, Row], reasons: Mapping[str, str], whole: Mapping[str, float]) -> str:
    """The result as a page."""
    timed = {name: row for name, row in rows.items() if "predicted_s" in row}
    lines = [
        "# Published runs of trainers, composed from a few of their layers",
        "",
        f"{datetime.date.today()}, by `python validation/trainer_plans.py`. Models of 24 layers and more are captured "
        "with 5 and 7 layers, others with all. Errors of whole captures are `presim validate`'s, whose programs were "
        "written for each source.",
        "",
        *_summary(timed, whole),
        "",
        KNOWN,
        *_memory_summary(rows),
        *_reasons(reasons),
        "",
        f"| {' | '.join(_HEADINGS)} |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in sorted(rows.items(), key=lambda item: (str(item[1]["family"]), item[0])):
        step = (
            [f"{row['published_s']:.4g} s", f"{row['predicted_s']:.4g} s", f"{error_of(row):+.1%}"]
            if name in timed
            else [""] * 3
        )
        captured = f"{whole[name]:+.1%}" if name in whole and name in timed else ""
        inside = ("yes" if row["inside"] else "no") if name in timed else ""
        published = f"{row['published_gib']:.1f} GiB" if row["published_gib"] else ""
        memory = f"{row['memory_gib']:.1f} GiB" if row["memory_gib"] else ""
        cells = [name, row["run"], row["framework"], *step, captured, inside, memory, published]
        lines.append(f"| {' | '.join(map(str, cells))} | {float(str(row.get('cpu_s') or row['took_s'])):.0f} s |")
    return "\n".join(lines) + "\n"


def _summary(timed: Mapping[str, Row], whole: Mapping[str, float]) -> Iterator[str]:
    """A table of errors by framework."""
    yield "| published by | rows | median error | p90 | median sign | inside the 80 % interval | whole captures |"
    yield "|---|---|---|---|---|---|---|"
    groups = {"all": timed} if timed else {}
    for family in dict.fromkeys(str(row["family"]) for row in timed.values()):
        groups[family] = {name: row for name, row in timed.items() if row["family"] == family}
    for family, rows in sorted(groups.items(), key=lambda item: -len(item[1])):
        errors = [error_of(row) for row in rows.values()]
        sizes = sorted(map(abs, errors))
        captured = [abs(whole[name]) for name in rows if name in whole]
        beside = f"{statistics.median(captured):.1%} of {len(captured)}" if captured else ""
        inside = sum(bool(row["inside"]) for row in rows.values()) / len(rows)
        yield (
            f"| {family} | {len(rows)} | {statistics.median(sizes):.1%} | {sizes[-(-9 * len(sizes) // 10) - 1]:.1%} "
            f"| {statistics.median(errors):+.1%} | {inside:.0%} | {beside} |"
        )


def _memory_summary(rows: Mapping[str, Row]) -> Iterator[str]:
    """A sentence on memory, where rows have it."""
    errors = [
        float(str(row["memory_gib"])) / float(str(row["published_gib"])) - 1
        for row in rows.values()
        if row["published_gib"]
    ]
    if errors:
        median = statistics.median(map(abs, errors))
        yield f"Memory of {len(errors)} rows: {median:.1%} off in the median, {min(errors):+.0%} to {max(errors):+.0%}."
        yield ""


def _reasons(reasons: Mapping[str, str]) -> Iterator[str]:
    """A table of the rows without a plan, by reason."""
    counts = collections.Counter(reasons.values())
    if counts:
        yield f"{sum(counts.values())} rows have no plan here:"
        yield ""
        yield "| reason | rows | such as |"
        yield "|---|---|---|"
        for reason, number in counts.most_common():
            yield f"| {reason} | {number} | {next(name for name, text in reasons.items() if text == reason)} |"


def _whole_errors(table: Path) -> dict[str, float]:
    rows = read_table(table, ("id", "error"), "predictions have")
    return {row["id"]: float(row["error"]) for row in rows if row["error"]}


def _without_plan(cases: Sequence[Case], rows: Mapping[str, Row], refused: Mapping[str, str]) -> dict[str, str]:
    """Why rows have no plan: by the table, or by the framework that refused it."""
    reasons: dict[str, str] = {}
    for case in cases:
        if family_of(case) and case.id not in rows:
            try:
                run_of(case)
            except CannotBuildError as error:
                reasons[case.id] = str(error)
            else:
                if case.id in refused:
                    reasons[case.id] = refused[case.id]
    return reasons


def main() -> None:
    """Predict the rows that the command line names, keeping each, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", default="", help="ids, separated by commas")
    parser.add_argument("--family", default="", help=f"part of {', '.join(FAMILIES)}")
    parser.add_argument("--each", type=int, default=2, help="rows of a framework, model and GPU")
    options = parser.parse_args()
    wanted = set(filter(None, re.split(r"[, ]+", options.only)))
    cases, whole = read_cases(options.table), _whole_errors(WHOLE)
    kept = json.loads(ROWS.read_text()) if ROWS.exists() else {"rows": {}, "refused": {}}
    rows, refused = kept["rows"], kept["refused"]
    for case in chosen(cases, wanted, options.family, options.each):
        if case.id in rows and case.id not in wanted:
            continue
        try:
            rows[case.id] = predicted(case)
            refused.pop(case.id, None)
            print(case.id, rows[case.id], flush=True)
        except PresimError as error:
            print(f"{case.id}: {error}", file=sys.stderr, flush=True)
            if not isinstance(error, CannotBuildError) or str(error).startswith("memory"):
                refused[case.id] = " ".join(str(error).split())[:200]
        ROWS.write_text(json.dumps(kept, indent=1) + "\n")
    RESULT.write_text(page(rows, _without_plan(cases, rows, refused), whole))


if __name__ == "__main__":
    with sentences():
        main()
