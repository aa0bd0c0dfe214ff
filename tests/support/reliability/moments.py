"""Signals at defined moments: when a function of presim is called for the n-th time. Nothing waits.

A case is a line of `CASES`: a verb with its inputs, the moment, what is printed and which outputs are there, partial.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.measured import table
from presim.cost.measured.measured_rows import PROFILE, Measurement
from presim.trace.signatures import Gemm
from support import command_server
from support.command import environment
from support.reliability.writing_verbs import VERBS

INTERRUPTED = "presim: interrupted\n"
PARTIAL = "presim: interrupted; what was finished is reported as partial\n"


@dataclasses.dataclass(frozen=True)
class Moment:
    """A verb that a signal ends at a call of a function."""

    name: str
    make: Callable[[Path], object]
    command: str
    function: str  # module:name
    count: int = 1
    printed: str = ""  # part of standard output
    outputs: tuple[str, ...] = ()  # files that are there, and no other; JSON has "partial": true
    earlier: str = ""  # file or folder that was whole before
    whole: tuple[str, ...] = ()  # outputs that are whole each, though there would be more of them
    note: str = ""  # what is lost or written, beside that it was interrupted
    torch: bool = False

    @property
    def errors(self) -> str:
        """Standard error."""
        return PARTIAL if self.outputs else f"presim: interrupted; {self.note}\n" if self.note else INTERRUPTED


@dataclasses.dataclass(frozen=True)
class Ended:
    """How it ended."""

    code: int
    printed: str
    errors: str
    files: dict[str, bytes]  # that it wrote, without earlier ones


def _nothing(folder: Path) -> None:
    """No inputs."""


def _verb(name: str) -> Callable[[Path], object]:
    return next(verb for verb in VERBS if verb.name == name).make


def _cases(folder: Path) -> None:
    """Two cases of a saved job."""
    _verb("validate")(folder)
    head, first, *_ = (folder / "cases.csv").read_text().splitlines()
    (folder / "cases.csv").write_text("\n".join((head, first, first.replace("one,", "two,", 1))) + "\n")


def _served(folder: Path) -> None:
    """Published serving runs."""
    row = "llama3-8b,H100 SXM 80GB,512,4,2,1"
    (folder / "runs.csv").write_text(f"id,model,gpu,isl,osl,concurrency,tp\na,{row}\nb,{row}\n")


def _three_results(folder: Path) -> None:
    """Results to compare."""
    _verb("compare")(folder)
    for name in ("a.json", "b.json", "c.json"):
        (folder / name).write_bytes((folder / "result.json").read_bytes())


def _two_budgets(folder: Path) -> None:
    """Two jobs to check."""
    _verb("gate")(folder)
    job = (folder / "budgets.toml").read_text()
    (folder / "budgets.toml").write_text(job + re.sub('name = ".*"', 'name = "second"', job))


def _measured_gpus(folder: Path) -> None:
    """Tables of products on two GPUs, to fit."""
    (folder / "data").mkdir()
    for name in ("a100-80gb-sxm", "h100-sxm"):
        gpu = hardware.gpu(name)
        work = [Gemm(256 * m, 512 * n, 4096, 1, "bfloat16", layout="NT") for m in range(1, 25) for n in range(1, 25)]
        prices = AnalyticEstimator(gpu).price(work)
        rows = [
            Measurement(gpu=name, signature=signature, duration_ns=1.2 * price.duration_ns, source=PROFILE)
            for signature, price in zip(work, prices)
            if price
        ]
        table.write(rows, folder / f"data/{name}.measured.parquet", {})


def _two_profiles(folder: Path) -> None:
    """Two traces of PyTorch's profiler to take prices from."""
    _verb("profile")(folder)
    (folder / "second.json").write_bytes((folder / "run.json").read_bytes())


def _command(name: str) -> str:
    return next(verb for verb in VERBS if verb.name == name).command


def _of_verb(name: str, function: str = "presim.system.files:write_file", count: int = 1, earlier: str = "") -> Moment:
    """A verb that has nothing to report before it ends."""
    verb = next(verb for verb in VERBS if verb.name == name)
    return Moment(name, verb.make, verb.command, function, count, earlier=earlier, torch=verb.torch)


_SEARCH = "search model.graph --gpu h100-sxm --world-size 8 --seq 256 --tp 1,2,4 --mbs 1,2 --global-batch 16 --jobs 1"
_COMPOSE = "compose model.graph --gpu h100-sxm --world-size 2 --seq 256"
_CALIBRATE = "calibrate serving llama3-8b --gpu h100-sxm --from bench.json --out o.json"
_FITTED, _IMPORTED = "fitted/gemm-half.a100-80gb-sxm.json", "prices/b200.imported.measured.parquet"
CASES = (
    Moment("search", _verb("search"), f"{_SEARCH} --json r.json --csv r.csv --html r.html --write best",
           "presim.planner.strategy.search_loop:EvaluationRounds._finished", 3,
           printed="partial: the search ended before",
           outputs=("r.json", "r.csv", "r.html"), torch=True),
    Moment("search, nothing finished", _verb("search"), f"{_SEARCH} --json r.json",
           "presim.planner.strategy.search_loop:EvaluationRounds._finished", torch=True),
    Moment("deploy", _nothing, "deploy llama3-8b --gpu h100-sxm --max-gpus 4 --json r.json --out launch",
           "presim.serving.deployments.deployment_search:_points", 3,
            printed="Partial: it was interrupted before the end.",
           outputs=("r.json",)),
    Moment("deploy, while simulating", _nothing, "deploy llama3-8b --gpu h100-sxm --max-gpus 1 --json r.json",
           "presim.serving.deployments.deployment_ranking:outcome_of", printed="Partial", outputs=("r.json",)),
    Moment("validate", _cases, "validate cases.csv --out p.csv --report p.md",
           "presim.studies.validation.solve:solve", 2, printed="partial: the rows behind are not predicted",
           outputs=("p.csv",)),
    Moment("validate with workers", _cases, "validate cases.csv --out p.csv --jobs 2",
           "presim.studies.validation.case_workers:_Workers._answer", 2,
           printed="partial: the rows behind are not predicted",
           outputs=("p.csv",)),
    Moment("validate serving", _served, "validate runs.csv --kind serving --out p.csv --report p.md",
           "presim.studies.validation.serving:predict_row", 2, printed="p.csv: 1 rows; partial", outputs=("p.csv",)),
    Moment("compare", _three_results, "compare a.json b.json c.json --json r.json --html r.html",
           "presim.studies.saved_jobs:result_of", 3, printed="partial: the work was interrupted",
           outputs=("r.json", "r.html")),
    Moment("compare, one result", _three_results, "compare a.json b.json --json r.json",
           "presim.studies.saved_jobs:result_of",
           2, note="nothing is compared, because fewer than two results were there"),
    Moment("training", _verb("training"), "training job --tokens 1e12 --runs 5 --json r.json --html r.html",
           "presim.studies.projection.projection:_train", 3, printed="Only 2 of 5 trainings were simulated.",
           outputs=("r.json", "r.html")),
    Moment("training, none simulated", _verb("training"), "training job --tokens 1e12 --runs 5 --json r.json",
           "presim.studies.projection.projection:_train",
           note="nothing is written, because no training was simulated to its end"),
    Moment("explain", _verb("explain"), "explain job --json r.json", "presim.studies.saved_jobs:evaluate_saved", 3,
           printed="partial: the work was interrupted", outputs=("r.json",)),
    Moment("explain, before any candidate", _verb("explain"), "explain job --json r.json",
           "presim.studies.saved_jobs:evaluate_saved",
           note="nothing is written, because the job itself was not simulated"),
    Moment("gate", _two_budgets, "gate budgets.toml --json r.json --markdown m.md --junit j.xml --keep kept",
           "presim.studies.gate.jobs:predict", 2,
           printed="not predicted, because `presim gate` was interrupted before it",
           outputs=("r.json", "m.md", "j.xml", "kept/llama.json"), whole=("kept/llama.json",)),
    Moment("gate, nothing predicted", _two_budgets, "gate budgets.toml --json r.json",
           "presim.studies.gate.jobs:predict",
           note="nothing is written, because no job was predicted"),
    Moment("prefill", _nothing, "prefill llama3-8b --gpu h100-sxm --sp 2 --lengths 4096,1024,512 --budget 4096 "
           "--json r.json --html r.html", "presim.serving.prompts.prefill:of_batch", 2,
           printed="partial: the work was interrupted", outputs=("r.json", "r.html")),
    Moment("prefill, no batch", _nothing, "prefill llama3-8b --gpu h100-sxm --sp 2 --lengths 4096 --json r.json",
           "presim.serving.prompts.prefill:of_batch", note="nothing is written, because no batch was planned"),
    Moment("serve", _verb("serve"), _command("serve"), "presim.serving.engines.simulate_fleet:simulate",
           earlier="w.jsonl", note="nothing is written, because not all requests were served"),
    Moment("rl", _nothing, "rl qwen3-8b --gpu h100-sxm --nodes 1 --prompts 16 --response 512 --json r.json",
           "presim.post_training.build:build_job", note="nothing is written, because no step was simulated to its end"),
    _of_verb("simulate"),
    Moment("simulate, before its end", _verb("simulate"), "simulate job --json r.json",
           "presim.verbs.simulate:evaluate", note="nothing is written, because the job was not simulated to its end"),
    _of_verb("report"),
    _of_verb("network"),
    Moment("calibrate job", _verb("calibrate job"), "calibrate job profiles --trace job --out c.toml",
           "presim.studies.calibrate.correct_cluster:calibrate_job",
           note="nothing is written, because the calibration was not fitted to its end"),
    Moment("calibrate serving", _verb("calibrate serving"), _CALIBRATE, "presim.serving.calibrate:calibrate",
           note="nothing is written, because the calibration was not fitted to its end"),
    Moment("fit", _measured_gpus, "fit data --out fitted", "presim.cost.fitting.fit_prices:fit_class", 2,
           printed="partial: not fitted are gemm-half on h100-sxm", outputs=(_FITTED,), whole=(_FITTED,)),
    Moment("fit, no class", _measured_gpus, "fit data --out fitted", "presim.cost.fitting.fit_prices:fit_class",
           note="nothing is written, because no class of work was fitted"),
    Moment("fit --nccl-tests", _verb("fit"), "fit --nccl-tests all_gather-8.log --out c.toml",
           "presim.cost.collective_logs.cluster_file:write_cluster",
           note="nothing is written, because a cluster file holds the fit of all measurements"),
    Moment("profile --import", _two_profiles, "profile --import run.json --import second.json --out prices",
           "presim.cost.measured.measured_rows:Intake.take", 2, printed="partial: not read are second.json",
           outputs=(_IMPORTED,), whole=(_IMPORTED,)),
    Moment("profile --import, nothing read", _two_profiles, "profile --import run.json --out prices",
           "presim.cost.measured.measured_rows:Intake.take",
           note="nothing is written, because no DATA was read to its end"),
    Moment("import", _verb("import"), "import profiles --out job", "presim.sources.readers:open_files",
           note="nothing is written, because the files were not read to their end"),
    Moment("import, while it simulates", _verb("import"), "import profiles --out job",
           "presim.verbs.import_job:evaluate_saved", earlier="job",
           note="the job is in job: go on with `presim simulate job`"),
    Moment("compose", _verb("compose"), _command("compose"), "presim.system.files:write_file", earlier="job",
           note="nothing is written, because the plan was not simulated to its end"),
    Moment("compose, before it simulates", _verb("compose"), f"{_COMPOSE} --json r.json",
           "presim.composition.compose:compose",
           note="nothing is written, because the plan was not simulated to its end"),
    Moment("compose --save", _verb("compose"), f"{_COMPOSE} --save new --json r.json",
           "presim.verbs.compose:evaluate", earlier="new",
           note="the job is in new: go on with `presim simulate new`"),
    Moment("run", _verb("run"), "run --gpu h100-sxm --json r.json --save job train.py",
           "presim.capture.processes.start:_wait", 2, torch=True,
           note="the capture is lost, because no rank had run to its end; --steps N makes it shorter"),
    Moment("run, while it simulates", _verb("run"), "run --gpu h100-sxm --json r.json train.py",
           "presim.verbs.run:_evaluate_capture", torch=True,
           note="the capture is lost; --save DIR keeps it for `presim simulate DIR`"),
    Moment("run --save, while it simulates", _verb("run"), "run --gpu h100-sxm --json r.json --save job train.py",
           "presim.verbs.run:_evaluate_capture", earlier="job", torch=True,
           note="the capture is in job: go on with `presim simulate job`"),
    Moment("run, while it compares ranks", _verb("run"), "run --gpu h100-sxm --world-size 32 --json r.json --html "
           "r.html --save job train.py", "presim.capture.ranks.auto:_all_ranks",
           printed="partial: the work was interrupted; the notes say what is missing", outputs=("r.json", "r.html"),
           earlier="job", torch=True),
    Moment("run --draws", _verb("run"), "run --gpu h100-sxm --values routing=uniform --draws 3 --json r.json train.py",
           "presim.verbs.run:_capture", 2, printed="partial: the work was interrupted", outputs=("r.json",),
           torch=True),
    Moment("serve --listen", _nothing, "serve llama3-8b --gpu h100-sxm --listen 0",
           "presim.system.localhost:listening_socket"),
    Moment("view", _verb("simulate"), "view job --no-open", "presim.app.view.server:serve"),
)  # fmt: skip


def ended_at(moment: Moment, folder: Path, number: int) -> Ended:
    """Run a case's command in a folder until the signal ends it."""
    folder.mkdir()
    moment.make(folder)
    before = {path for path in folder.rglob("*") if path.is_file()}
    words = [moment.function, str(moment.count), str(int(number)), *moment.command.split()]
    variables = environment({"TMPDIR": str(folder.parent)})
    ended = command_server.run("support.reliability.signalled", words, folder, variables, 600) or subprocess.run(
        [sys.executable, "-m", "support.reliability.signalled", *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    files = {path for path in folder.rglob("*") if path.is_file()} - before
    written = {os.path.relpath(path, folder): path.read_bytes() for path in files}
    partial = {name: data for name, data in written.items() if Path(name).parts[0] != moment.earlier}
    return Ended(ended.returncode, ended.stdout, ended.stderr, partial)


def is_marked(name: str, content: bytes) -> bool:
    """Whether an output says that it is partial; a table shows it by the rows that it lacks."""
    return not name.endswith(".json") or json.loads(content).get("partial") is True
