"""A small result of every kind, written by its verb, beside what the verb printed. A new kind is one line here."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

from presim.cli import main
from presim.composition.capture_comparison import Agreement, ComparedFigure, Difference, Turn
from presim.composition.graph import graph_files as graphs
from presim.composition.graph.graph_schema import Node, Operand, OperatorGraph, Parameter, Segment, Value, ValueOrigin
from presim.planner import matrix, study
from presim.planner.answer import matrix_page, search_table
from presim.planner.matrix import ClusterRun, Matrix
from presim.planner.objectives import OBJECTIVES, Work
from presim.planner.run_search import answer
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.trials.trial import Trial
from presim.post_training import rl_answer, rl_text
from presim.post_training.rl_loop import simulate as simulate_rl
from presim.report import agreement
from presim.trace import job_store
from support import rl_jobs, workloads
from support.searching import figures

_SERVE = "llama3-8b --gpu h100-sxm"
_DEPLOY = f"deploy {_SERVE} --max-gpus 1 --weights bf16 --no-disaggregation --slo tpot:50"
WRITE, PRINT = "--json {out}", "--json"  # how a verb is asked for JSON: into a file, or instead of its report
COMMANDS = {  # kind: words of the verb, how it is asked
    "run": ("simulate {job}", WRITE),
    "comparison": ("compare {job} --with '--gpu b200'", WRITE),
    "explanation": ("explain {job}", WRITE),
    "training": ("training {job} --tokens 1e12 --runs 3 --price-per-gpu-hour 2", WRITE),
    "gate": ("gate {budgets}", WRITE),
    "serving": (f"serve {_SERVE} --requests 60 --rate 4 --slo ttft:500", WRITE),
    "prefill": (f"prefill {_SERVE} --sp 2 --lengths 4096,1024,512", WRITE),
    "deployments": (_DEPLOY, WRITE),
    "calibration": ("calibrate job 0.5 --trace {job} --out {toml}", PRINT),
    "network": ("network {cluster} --collective all_to_all", PRINT),
    "trace-view": ("trace {job} --entries 13:20", PRINT),
    "graph-summary": ("graph show {graph}", PRINT),
    "hardware": ("hardware list", PRINT),
    "gpu": ("hardware show h100-sxm", PRINT),
    "node": ("hardware show hgx-h100", PRINT),
    "fabric": ("hardware show ib-ndr-400", PRINT),
    "cluster": ("hardware show {cluster}", PRINT),
    "models": ("models llama", WRITE),
    "validation": ("validate {cases} --kind collectives --out {out}", ""),
    "doctor": ("doctor", PRINT),
    "lines": ("network explain --gpu h100-sxm --nodes 2", PRINT),
    "serving-calibration": (f"calibrate serving {_SERVE} --from {{bench}} --out {{out}}", ""),
}


@dataclasses.dataclass(frozen=True)
class Sample:
    """A result and the report that its verb printed."""

    path: Path
    printed: str


def kinds() -> tuple[str, ...]:
    """The kinds that have a sample."""
    return (*COMMANDS, "search", "search-matrix", "agreement", "rl")


def samples(folder: Path) -> dict[str, Sample]:
    """A result of every kind, written into a folder."""
    files = _files(folder)
    found = {kind: _called(kind, words, asked, files, folder) for kind, (words, asked) in COMMANDS.items()}
    return {
        **found,
        "search": _search(folder),
        "search-matrix": _matrix(folder),
        "agreement": _agreement(folder),
        "rl": _rl(folder),
    }


def printed(call: Callable[[], object]) -> str:
    """What a call prints to standard output, as text or bytes."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(stream):
        call()
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def run(words: list[str]) -> str:
    """What a verb prints; its own errors go to standard error, as of the command line."""
    codes: list[int] = []
    text = printed(lambda: codes.append(main.run(words)))
    assert codes[0] in (0, 1, 4, 7), (codes, words)  # of doctor and gate, too
    return text


def _called(kind: str, words: str, asked: str, files: dict[str, Path], folder: Path) -> Sample:
    import shlex

    path = folder / f"{kind}.json"
    named = {name: str(file) for name, file in files.items()} | {"out": str(path)}
    command = [word.format(**named) for word in shlex.split(words)]
    if asked == PRINT:
        report = run(command)
        Path(named["toml"]).unlink(missing_ok=True)  # a calibration writes a new file
        path.write_text(run([*command, PRINT]))
        return Sample(path, report)
    return Sample(path, run([*command, *asked.format(**named).split()]))


def _files(folder: Path) -> dict[str, Path]:
    """What the verbs are given."""
    names = ("job", "toml", "cluster", "graph", "budgets", "bench", "cases")
    files = {name: folder / f"{name}{'' if name == 'job' else '.toml'}" for name in names}
    job_store.save([workloads.llama_8b(steps=2, layers=3)], files["job"])
    files["cluster"].write_text('gpu = "h100-sxm"\nnodes = 4\n\n[network]\nleaf_nodes = 2\noversubscription = 4.0\n')
    files["budgets"].write_text(
        f'[[job]]\nname = "small"\nsimulate = ["{files["job"]}"]\nmemory_GiB = 70.0\nstep_time_s = 0.001\n'
    )
    files["cases"].write_text(
        "gpu,n_gpus,n_nodes,gpus_per_node,collective,size_bytes,time_us\n"
        "h100-sxm,8,1,8,all_reduce,1073741824,4800\nh100-sxm,8,1,8,all_reduce,none,4800\n"
    )
    graphs.save(_graph(), files["graph"])
    load = {"mean_tpot_ms": 9.0, "median_ttft_ms": 40.0, "mean_ttft_ms": 42.0, "output_throughput": 300.0}
    counts = {"completed": 40, "total_input_tokens": 8000, "total_output_tokens": 1600, "request_rate": 8.0}
    files["bench"].write_text(json.dumps({**load, **counts}))
    return files


def _graph() -> OperatorGraph:
    product = Node("aten::mm", "lm_head", (Operand(0, 0, "bfloat16", 1), Operand(1, 1, "bfloat16", 2)),
                   (Operand(2, 2, "bfloat16", 3),))  # fmt: skip
    values = (
        Value(ValueOrigin.INPUT, 64, "x"),
        Value(ValueOrigin.PARAMETER, 64, "lm_head.weight"),
        Value(ValueOrigin.OWN, 64),
    )
    shapes = ((4, 8), (8, 4), (4, 4), (8, 1))
    parameters = (Parameter("lm_head.weight", (8, 4), "bfloat16"),)
    return OperatorGraph("m", "Model", (Segment("", False, values, (product,)),), shapes, parameters)


def _matrix(folder: Path) -> Sample:
    """Two clusters, of which the smaller cannot run the other's plan."""
    runs = [
        ClusterRun(plan_of=0, on=0, step_time_s=2.0, value=2.0, loss=0.0),
        ClusterRun(plan_of=0, on=1, words="does not fit"),
        ClusterRun(plan_of=1, on=0, step_time_s=2.5, value=2.5, loss=0.25),
        ClusterRun(plan_of=1, on=1, step_time_s=4.0, value=4.0, loss=0.0),
    ]
    content = Matrix(
        subject="llama3-8b",
        objective="step_time",
        clusters=["h100-sxm:2", "a100-80gb-sxm:2"],
        plans=[{"tensor": 1, "micro_batch": 4}, {"tensor": 4, "micro_batch": 1}],
        runs=runs,
    )
    path = folder / "search-matrix.json"
    path.write_bytes(matrix.encode(content))
    return Sample(path, printed(lambda: matrix_page.write(content)))


def _search(folder: Path) -> Sample:
    """A search of four plans that nobody simulated."""
    space = Space({"tensor": (1, 2, 4, 8), "recompute": ("none", "full")}, {"sequence": 64})
    request = SearchRequest(
        subject="model", space=space, objectives=[OBJECTIVES["step_time"]], work=Work(1e12, price_per_gpu_hour=2.0)
    )
    trials = [
        Trial(number=number, point=point, fate="priced", figures=figures(1.0 + number / 9, headroom_gib=4 - number))
        for number, point in enumerate(space)
    ]
    found = answer(request, trials)
    path = folder / "search.json"
    path.write_bytes(study.encode(found))
    return Sample(path, printed(lambda: search_table.write(found)))


def _agreement(folder: Path) -> Sample:
    """The comparison of a composed job with a captured one."""
    found = Agreement(
        {"product": 12, "attention": 2, "collective": 4},
        (Difference(0, "product", "Gemm m=8 n=8 k=8", 2, 1),),
        (
            ComparedFigure("step time", "seconds", 0.25, 0.24),
            ComparedFigure("peak reserved", "bytes", float(3 << 30), float(3 << 30)),
        ),
        (Turn(0, 3, "all_gather", "reduce_scatter"),),
    )
    path = folder / "agreement.json"
    path.write_bytes(agreement.encode(found))
    return Sample(path, printed(lambda: agreement.write(found)))


def _rl(folder: Path) -> Sample:
    """Two steps of post-training on separate pools, whose training side nobody composed."""
    built = rl_jobs.built(rl_jobs.job(staleness=1.0, steps=2))
    found = rl_answer.answer(built, simulate_rl(built.job, built.prices))
    path = folder / "rl.json"
    path.write_bytes(rl_text.encode(found))
    return Sample(path, printed(lambda: rl_text.write(found)))


if __name__ == "__main__":
    samples(Path(sys.argv[1]))
