"""Ranks are forks of one process, which scripts must not notice."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from presim.capture.capture_job import CaptureRequest, capture
from presim.capture.launchers.launch import Launch
from presim.capture.processes.kept_forks import KeptForks
from presim.capture.ranks.rank_selection import Selection
from presim.errors import ExitCode
from presim.hardware.cluster_choice import choose_cluster
from presim.trace import job_store
from presim.trace.schema import Kind, Trace
from support import preloaded
from support.command import presim, processes_of, start

pytestmark = pytest.mark.torch_cuda

WORLD = ("--gpu", "h100-sxm", "--world-size", "2", "-q")

LOOKS = """
import json, os, random, sys, threading, torch, numpy
import networkx  # reads all variables
import pyarrow  # would start a thread
import multiprocessing
tasks = len(os.listdir("/proc/self/task"))
torch.ones(3, device="cuda").sum().item()
seen = {
    "rank": os.environ["RANK"],
    "session": os.getsid(0) == os.getpid(),
    "threads": [tasks, threading.active_count()],
    "main": threading.current_thread() is threading.main_thread(),
    "argv": sys.argv[1:],
    "first": sys.path[0] == os.path.dirname(os.path.abspath(__file__)),
    "name": __name__,
    "child": multiprocessing.parent_process() is not None,
    "wait": os.environ["TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT"],
    "drawn": [random.random(), float(numpy.random.rand()), float(torch.rand(1)), torch.initial_seed()],
}
sys.stdout.write(json.dumps(seen) + "\\n")  # one write, whatever is buffered: the ranks share the pipe
sys.exit(3 if os.environ["RANK"] == "1" else 0)
"""


def test_a_forked_rank_looks_like_a_separate_process(tmp_path: Path) -> None:
    """What a fork inherits is not to be seen, and what one process draws another does not.

    A fork imports nothing again: pyarrow would have started a thread in it.
    """
    script = tmp_path / "looks.py"
    script.write_text(LOOKS)
    ended = presim("run", *WORLD, "--ranks", "all", script, "--batch", "2")
    assert ended.stderr.startswith("presim: rank 1: the script exited with 3;"), ended.stderr
    one, other = sorted((json.loads(line) for line in ended.stdout.splitlines()), key=lambda seen: seen["rank"])
    drawn = [one.pop("drawn"), other.pop("drawn")]
    assert all(mine != theirs for mine, theirs in zip(*drawn, strict=True))
    common = {"session": True, "threads": [1, 1], "main": True, "argv": ["--batch", "2"], "first": True, "child": False}
    assert one == {"rank": "0", "name": "__main__", "wait": "0", **common}
    assert other == {**one, "rank": "1"}


DIES = """
import os, signal, torch
torch.ones(3, device="cuda").sum().item()
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_rank_that_is_killed_is_named_with_the_signal(tmp_path: Path) -> None:
    script, report = tmp_path / "dies.py", tmp_path / "r.json"
    script.write_text(DIES)
    ended = presim("run", *WORLD, "--ranks", "all", "--json", report, script)
    assert ended.returncode == ExitCode.SCRIPT_FAILED, ended.stderr
    result = json.loads(report.read_text())
    assert (result["job"]["rank"], result["error"]) == (1, "the script's process ended with SIGSEGV")


TRAINS = """
import os, torch, torch.distributed as dist
from torch import nn
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.long
def test_a_fork_has_the_same_trace_as_a_separate_process(tmp_path: Path) -> None:
    """Rank 0 is a separate process by itself and a fork beside rank 1. The times of frees may differ."""
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    asked = []
    for ranks in ("0", "all"):
        ended = presim("run", *WORLD, "--ranks", ranks, "--save", tmp_path / ranks, script)
        assert ended.returncode == 0, ended.stderr
        trace = job_store.load(tmp_path / ranks).traces[0]
        mask = trace.mask(Kind.WORK, Kind.COLLECTIVE)
        asked.append([str(trace.signatures[at]) for at in trace.columns["signature"][mask]])
        clock = np.asarray(trace.columns["host_ns"])
        assert (clock >= 0).all()
    assert asked[0] == asked[1]


WAITS = """
import os, signal, torch
torch.ones(3, device="cuda").sum().item()
os.write(1, b"ready\\n")
signal.pause()
"""


@pytest.mark.long
def test_a_killed_launcher_ends_all_forks(tmp_path: Path) -> None:
    """Through the zygote; the pipe closes when the last fork has ended."""
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    running = start("run", *WORLD, "--ranks", "all", script, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert running.stdout is not None
    assert [running.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
    running.kill()
    running.communicate(timeout=60)
    assert processes_of(str(tmp_path)) == []


PREPARES = """
import os, sys, types
import torch

os.environ.setdefault("PRESIM_TEST_SAW", str(os.getpid()))
stand_in = types.ModuleType("presim_test_stand_in")
stand_in.width = lambda: 64
sys.modules[stand_in.__name__] = stand_in
"""
IMPORTS = """
import os
import preparation
import json.tool
from presim_test_stand_in import width
import torch
from torch import nn
assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
"""
ALONE = """
if __name__ == "__main__":
    assert os.environ["PRESIM_TEST_SAW"] {} str(os.getpid())
    model = nn.Sequential(nn.Linear(width(), 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(4, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

SAME = """
import os, torch
assert os.environ["RANK"] == "0" and __name__ == "__main__"
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def captured(script: Path, kept: KeptForks | None) -> Trace:
    cluster = choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=1)
    request = CaptureRequest(Launch(str(script), ()), Selection((0,)), hides_output=True)
    forks = kept.of(script, cluster) if kept else None
    (trace,) = capture(request, cluster, forks=forks).traces
    assert trace.manifest.error == ""
    return trace


def asked(trace: Trace) -> list[str]:
    mask = trace.mask(Kind.WORK, Kind.COLLECTIVE)
    return [str(trace.signatures[at]) for at in trace.columns["signature"][mask]]


@pytest.fixture(autouse=True)
def _as_for_a_user() -> Iterator[None]:
    with preloaded.removed():
        yield


@pytest.mark.long
def test_captures_of_tests_have_the_same_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are forks of a server's (`support.preloaded`), of whose environment a second request makes a base."""
    script = tmp_path / "script.py"
    script.write_text(SAME)
    alone = captured(script, None)
    preloaded.install()
    server = functools.cache(
        preloaded.start_server.__wrapped__
    )  # its own: a worker's may have as many bases as allowed
    monkeypatch.setattr(preloaded, "start_server", server)
    monkeypatch.delenv(preloaded.SERVER, raising=False)
    started, fork = [], preloaded._fork
    monkeypatch.setattr(preloaded, "_fork", lambda *request: started.append(fork(*request)) or started[-1])
    traces = [captured(script, None) for _ in range(3)]
    assert isinstance(started[-1], preloaded.PreloadedProcess)
    assert all(asked(trace) == asked(alone) for trace in traces)
    assert all(trace.manifest.allocator == alone.manifest.allocator for trace in traces)


@pytest.mark.long
def test_preimported_scripts_have_the_same_trace(tmp_path: Path) -> None:
    """Its files run again in the fork; the next capture is a fork of the same zygote."""
    (tmp_path / "preparation.py").write_text(PREPARES)
    plain, forked = tmp_path / "plain.py", tmp_path / "forked.py"
    plain.write_text(IMPORTS + ALONE.format("=="))
    forked.write_text(IMPORTS + ALONE.format("!="))
    kept = KeptForks()
    try:
        traces = [captured(plain, None), captured(forked, kept), captured(forked, kept)]
    finally:
        kept.close()
    assert asked(traces[0]) == asked(traces[1]) == asked(traces[2])
    assert traces[0].manifest.allocator == traces[1].manifest.allocator == traces[2].manifest.allocator


@pytest.mark.long
def test_a_script_that_uses_the_device_during_import_runs_separately(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.ones(3, device='cuda').sum()\n")
    kept = KeptForks()
    try:
        assert asked(captured(script, kept)) == asked(captured(script, None))
    finally:
        kept.close()


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        pytest.param("", "", marks=pytest.mark.long),
        ("raise SystemExit(3)", "rank 0:\na line\na warning\n"),
    ],
)
def test_hidden_output_is_shown_if_the_script_fails(
    last: str, shown: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Otherwise its output and libraries' warnings stay hidden."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\ntorch.ones(3, device='cuda')\nprint('a line', flush=True)\n"
        f"print('a warning', file=sys.stderr)\n{last}\n"
    )
    request = CaptureRequest(Launch(str(script), ()), Selection((0,)), hides_output=True)
    capture(request, choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=1))
    assert capfd.readouterr() == ("", shown)
