"""Every verb that writes files: its inputs, and a command line with all of its outputs."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import shutil
from collections.abc import Callable
from pathlib import Path

from presim.cli import main
from support import nccl_logs, profiles, workloads
from support.reliability.kinds import KINDS

SCRIPT = """import torch
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(32, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@dataclasses.dataclass(frozen=True)
class Writing:
    """A verb that writes. ``make`` puts its inputs into a folder, where ``command`` runs."""

    name: str
    make: Callable[[Path], object]
    command: str
    same: bool = True  # undisturbed calls write the same bytes; a capture measures host time, which varies
    progress: tuple[str, ...] = ()  # outputs that grow while the verb runs, and from which the next call continues
    partial: tuple[str, ...] = ()  # outputs that a signal other than SIGKILL leaves with what is finished
    torch: bool = False  # needs PyTorch and the emulated libraries


def _kind(name: str) -> Callable[[Path], object]:
    return next(kind for kind in KINDS if kind.name == name).make


def _quietly(words: str, folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
        if code := main.run(words.split()):
            raise RuntimeError(f"presim {words}: exit code {code}")


def _script(folder: Path) -> None:
    (folder / "train.py").write_text(SCRIPT)


def _saved(folder: Path) -> None:
    from presim.trace import job_store

    job_store.save([workloads.llama_8b(steps=2, layers=2)], folder / "job")


def _two_ranks(folder: Path) -> None:
    """Profiles of two ranks, as PyTorch writes them."""
    (folder / "profiles").mkdir()
    for path in profiles.exported(folder / "profiles", profiles.simulated()):
        profiles.as_pytorch(path)


def _profiles_and_job(folder: Path) -> None:
    from presim.trace import job_store

    _two_ranks(folder)
    job_store.save([profiles.program(0), profiles.program(1)], folder / "job")


def _logs(folder: Path, kind: str = "all_gather") -> None:
    from presim.hardware import choose_cluster

    nccl_logs.write(folder, choose_cluster(gpu="h100-sxm", nodes=1), kind, 8, 1)


def _cluster_and_profiles(folder: Path) -> None:
    """A cluster fitted to the kind of collective that the profiles have."""
    _logs(folder, "all_reduce")
    _quietly("fit --nccl-tests all_reduce-8.log --out cluster.toml -q", folder)
    _two_ranks(folder)


_ALL = "--json r.json --html r.html --perfetto r.perfetto --memory-snapshot r.pickle --chakra chakra --kineto kineto"
_SEARCH = "search model.graph --gpu h100-sxm --world-size 8 --seq 256 --tp 1,2,4 --mbs 1,2 --global-batch 16 --jobs 1"

VERBS = (
    Writing("run", _script, f"run --gpu h100-sxm {_ALL} --save job -q train.py", same=False, torch=True),
    Writing("import", _two_ranks, f"import profiles --out job {_ALL} -q"),
    Writing("simulate", _saved, f"simulate job {_ALL} -q"),
    Writing("graph", _kind("served config"), "graph take config.json --out model.graph", torch=True),
    Writing("compose", _kind("graph"), f"compose model.graph --gpu h100-sxm --world-size 2 --seq 256 {_ALL} --save job"
            " --write launch -q", torch=True),
    Writing("serve", lambda folder: None, "serve llama3-8b --gpu h100-sxm --requests 50 --rate 5 --json r.json"
            " --html r.html --perfetto r.perfetto --save-workload w.jsonl -q"),
    Writing("search", _kind("graph"), f"{_SEARCH} --study study.log --json r.json --csv r.csv --html r.html --write"
            " best -q", progress=("study.log",), partial=("r.json", "r.csv", "r.html"), torch=True),
    Writing("deploy", lambda folder: None, "deploy llama3-8b --gpu h100-sxm --max-gpus 1 --input 128 --output 16"
            " --json r.json --out launch", partial=("r.json",)),
    Writing("report", _kind("result"), "report result.json --html r.html"),
    Writing("compare", _kind("compared result"), "compare result.json job --json r.json --html r.html -q",
            partial=("r.json", "r.html")),
    Writing("explain", _saved, "explain job --json r.json -q", partial=("r.json",)),
    Writing("training", _kind("trained result"), "training job --tokens 1e12 --runs 5 --json r.json --html r.html -q",
            partial=("r.json", "r.html")),
    Writing("gate", _kind("budgets"), "gate budgets.toml --keep kept --json r.json --markdown m.md --junit j.xml -q"),
    Writing("profile", _kind("profiler trace"), "profile --import run.json --out prices -q"),
    Writing("network", _kind("network"), "network c.toml --collective all_reduce --plot n.svg"),
    Writing("calibrate job", _profiles_and_job, "calibrate job profiles --trace job --out c.toml"),
    Writing("calibrate serving", _kind("benchmark"), "calibrate serving llama3-8b --gpu h100-sxm --from bench.json"
            " --out o.json"),
    Writing("fit", _logs, "fit --nccl-tests all_gather-8.log --out c.toml -q"),
    Writing("fit --update", _cluster_and_profiles, "fit --update cluster.toml profiles/rank-0.pt.trace.json"
            " profiles/rank-1.pt.trace.json --out c.toml -q"),
    Writing("validate", _kind("cases"), "validate cases.csv --out p.csv --report p.md", progress=("p.csv",)),
)  # fmt: skip


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def prepared(verb: Writing, folder: Path) -> Path:
    """The folder with the inputs of a verb."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with contextlib.redirect_stdout(io.StringIO()):
        verb.make(folder)
    return folder
