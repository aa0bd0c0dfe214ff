"""Several ranks of a real script: what they exchange, which are captured, how they end."""

from __future__ import annotations

import itertools
import json
import re
import signal
from pathlib import Path

import pytest

from presim.errors import ExitCode
from support.captured import EXAMPLES, SCRIPTS
from support.command import presim, processes_of, start
from support.long_cases import marked

pytestmark = pytest.mark.torch_cuda

WORLD = ("--gpu", "h100-sxm", "--world-size", "4")


def test_ranks_that_run_together_exchange_real_data() -> None:
    """Over the CPU. Ranks 1 and 2 do not run; rank 0 represents them."""
    ended = presim("run", *WORLD, "-q", "--ranks", "0,3", SCRIPTS / "objects.py")
    assert ended.returncode == 0, ended.stderr
    heard = ["x", "x", "x", "xxxx"]
    assert sorted(ended.stdout.splitlines()) == sorted(
        [
            *(f"all_gather {rank} {heard}" for rank in (0, 3)),
            *(f"broadcast {rank} ['from 3']" for rank in (0, 3)),
            *(f"{name} {rank} ['for {rank}']" for name in ("scatter", "scattered by all") for rank in (0, 3)),
            "gather 0 [0, 0, 0, 30]",
            "gather 3 None",
            *(f"sum {rank} 3.0" for rank in (0, 3)),
            "recv 3 7",
        ]
    )


def test_a_single_rank_assumes_that_others_hold_the_same_data(tmp_path: Path) -> None:
    """It takes its own part of a scattered list, if it has one; otherwise the result has a note."""
    report = tmp_path / "r.json"
    ended = presim("run", *WORLD, "-q", "--json", report, "--ranks", "1", SCRIPTS / "objects.py")
    assert ended.returncode == 0, ended.stderr
    assert "all_gather 1 ['xx', 'xx', 'xx', 'xx']" in ended.stdout
    assert "sum 1 4.0" in ended.stdout
    assert "scatter 1 [None]" in ended.stdout
    assert "scattered by all 1 ['for 1']" in ended.stdout
    notes = [note for note in json.loads(report.read_text())["notes"] if "scatter_object_list" in note]
    assert notes == [
        "The object that rank 0 sends by scatter_object_list is unknown because that rank does not run; rank 1 "
        "continues with None. --ranks 0,1 runs both."
    ]


@pytest.mark.parametrize("ranks", marked(["0", "all"], ["0"]))
def test_objects_of_any_size_are_exchanged_and_shards_are_saved(ranks: str, tmp_path: Path) -> None:
    """The script checks itself: gathered, scattered and broadcast with NCCL, and a distributed checkpoint."""
    ended = presim("run", *WORLD, "-q", "--ranks", ranks, SCRIPTS / "nccl_objects.py", tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.long
def test_all_ranks_of_a_small_world_run_and_equal_ones_are_merged(tmp_path: Path) -> None:
    """Fully sharded data parallel on two nodes of four GPUs."""
    pytest.importorskip("transformers")
    report = tmp_path / "r.json"
    cluster = ("--gpu", "h100-sxm", "--nodes", "2", "--gpus-per-node", "4")
    ended = presim("run", *cluster, "-q", "--json", report, EXAMPLES / "llama_fsdp2.py")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(report.read_text())
    assert [(rank["rank"], rank["represented"]) for rank in result["ranks"]] == [(0, 8)]
    coverage = result["coverage"]
    assert (coverage["captured"], coverage["compared"], coverage["assumed"], coverage["steps"]) == (1, 7, 0, 3)
    assert coverage["rank_reads"] == [f"{EXAMPLES / 'llama_fsdp2.py'}:94 (LOCAL_RANK, to choose a device or print)"]
    assert result["notes"][0] == "8 ranks: 1 captured, 7 compared over 3 steps and the same (every rank ran)."


UNEVEN = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rows = 5 if dist.get_rank() >= 6 else 8  # the last two ranks have less
weight = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
for _ in range(3):
    weight(torch.ones(rows, 64, device="cuda")).sum().backward()
    dist.all_reduce(weight.weight.grad)
    optimizer.step()
"""


def test_ranks_that_differ_are_captured_and_matched(tmp_path: Path) -> None:
    """Ranks 6 and 7 of 8 differ."""
    script, report = tmp_path / "uneven.py", tmp_path / "r.json"
    script.write_text(UNEVEN)
    ended = presim("run", "--gpu", "h100-sxm", "--world-size", "8", "-q", "--json", report, script)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(report.read_text())
    assert [(rank["rank"], rank["represented"]) for rank in result["ranks"]] == [(0, 6), (6, 2)]
    assert any(note.startswith("Rank 6 captured, too: rank 6 differs from rank 0") for note in result["notes"])


@pytest.mark.long
def test_a_large_world_is_sampled_and_unsampled_ranks_are_reported(tmp_path: Path) -> None:
    """The last 56 of 256 ranks differ; some of them are sampled, and a rank between them and the others."""
    script, report = tmp_path / "uneven.py", tmp_path / "r.json"
    script.write_text(UNEVEN.replace(">= 6", ">= 200"))
    ended = presim("run", "--gpu", "h100-sxm", "--world-size", "256", "-q", "--json", report, script)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(report.read_text())
    coverage = result["coverage"]
    assert [rank["rank"] for rank in result["ranks"]] == [0, 255]
    assert coverage["captured"] + coverage["compared"] + coverage["assumed"] == 256
    assert coverage["compared"] >= 3
    assert 0 < coverage["undecided"] < 128
    assert coverage["rank_reads"] == [f"{script}:3 (LOCAL_RANK, to choose a device or print)", f"{script}:5 (get_rank)"]
    assert "because the program reads its rank" in coverage["rule"]
    assert any(note.startswith("An assumed rank that has more work") for note in result["notes"])


TALKS = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank = dist.get_rank()
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    model(torch.ones({rows}, 1024, device="cuda")).sum().backward()
    {talk}
    optimizer.step()
"""
REDUCE = "dist.all_reduce(model.weight.grad)"


HANGS = {  # what ranks say to each other, the number of steps, what the error names
    "a barrier more": (
        f"{REDUCE}; rank == 1 and step == 1 and dist.barrier()",
        "3",
        r"rank 1.* at \S*talks\.py:10: all_reduce",
    ),
    "both receive": ("dist.recv(model.weight.grad, 1 - rank)", "3", r"rank 1.* at \S*talks\.py:10: recv"),
    "a step fewer": (REDUCE, "3 - rank", r"rank 0.* at \S*talks\.py:10: all_reduce of 4194304 bytes"),
}
MODES = ((), ("--ranks", "all"), ("--live",))
SHORT = list(zip(HANGS, MODES))[:2]  # each hang in a mode of its own


@pytest.mark.parametrize(
    ("hang", "mode"),
    [
        pytest.param(*case, id=f"{case[0]}-{case[1]}", marks=[] if case in SHORT else [pytest.mark.long])
        for case in itertools.product(HANGS, MODES)
    ],
)
def test_a_job_that_would_hang_is_never_predicted(hang: str, mode: tuple[str, ...], tmp_path: Path) -> None:
    """Whichever ranks are requested: the error names ranks, lines and groups."""
    talk, steps, named = HANGS[hang]
    script = tmp_path / "talks.py"
    script.write_text(TALKS.format(talk=talk, steps=steps, rows=8))
    ended = presim("run", "--gpu", "h100-sxm", "--world-size", "2", "-q", *mode, script)
    assert ended.returncode == ExitCode.HANGS
    assert "the job would hang" in ended.stderr
    assert re.search(named, ended.stderr), ended.stderr
    assert "'default_pg' (ranks 0, 1)" in ended.stderr


@pytest.mark.long
def test_one_rank_with_more_work_is_the_straggler(tmp_path: Path) -> None:
    """Rank 3 of 8 has sixteen times the batch."""
    script, report = tmp_path / "talks.py", tmp_path / "r.json"
    script.write_text(TALKS.format(talk=REDUCE, steps="3", rows="(1 << 14) * (16 if rank == 3 else 1)"))
    ended = presim("run", "--gpu", "h100-sxm", "--world-size", "8", "-q", "--json", report, script)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(report.read_text())
    assert [(rank["rank"], rank["represented"]) for rank in result["ranks"]] == [(0, 7), (3, 1)]
    assert result["ranks"][0]["waiting_s"] > 5 * result["ranks"][0]["compute_s"]


CPU_RECV = """
import torch, torch.distributed as dist
dist.init_process_group("cpu:gloo,cuda:nccl")
torch.ones(9, device="cuda").sum()
dist.recv(torch.zeros(4), 1 - dist.get_rank())
"""


@pytest.mark.long
def test_ranks_that_wait_for_each_other_on_the_cpu_are_named(tmp_path: Path) -> None:
    """Long before the limit."""
    script = tmp_path / "gloo.py"
    script.write_text(CPU_RECV)
    ended = presim("run", "--gpu", "h100-sxm", "--world-size", "2", "-q", script)
    assert ended.returncode == ExitCode.HANGS
    expected = f"the job would hang: every rank waits for another, rank 0 at {script}:5, rank 1 at {script}:5"
    assert expected in ended.stderr


FAILS = """
import os, time, torch
torch.ones(9, device="cuda").sum()
if os.environ["RANK"] == "2":
    raise RuntimeError("rank 2 has no data")
open(os.environ["MARK"] + os.environ["RANK"], "w").close()
time.sleep(60)
"""


@pytest.mark.long
def test_a_rank_that_fails_is_named_and_the_others_are_stopped(tmp_path: Path) -> None:
    script, report = tmp_path / "fails.py", tmp_path / "r.json"
    script.write_text(FAILS)
    ended = presim("run", *WORLD, "-q", "--ranks", "0-2", "--json", report, script, MARK=str(tmp_path / "mark"))
    assert ended.returncode == ExitCode.SCRIPT_FAILED
    assert "rank 2:\nTraceback" in ended.stderr
    assert "presim: rank 2: RuntimeError: rank 2 has no data; the result covers" in ended.stderr
    result = json.loads(report.read_text())
    assert (result["job"]["rank"], result["exit"], result["error"]) == (2, "raised", "RuntimeError: rank 2 has no data")
    assert not processes_of(str(tmp_path))


WAITS = """
import os, signal, torch
torch.ones(9, device="cuda").sum()
os.write(1, b"ready\\n")
signal.pause()
"""


@pytest.mark.long
def test_ctrl_c_leaves_no_rank_behind(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    process = start("run", *WORLD, "-q", "--ranks", "0-2", script, cwd=tmp_path, MARK=str(tmp_path))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not processes_of(str(tmp_path))


@pytest.mark.long
def test_a_pipeline_has_one_rank_per_stage_and_another_pipeline_is_sampled(tmp_path: Path) -> None:
    """Four stages, two pipelines; stages really exchange shapes. The last stage has an extra layer."""
    report = tmp_path / "r.json"
    script = SCRIPTS / "pipeline.py"
    ended = presim("run", "--gpu", "h100-sxm", "--world-size", "8", "-q", "--json", report, script)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(report.read_text())
    ranks = result["ranks"]
    assert [(rank["rank"], rank["represented"]) for rank in ranks] == [(0, 2), (2, 2), (4, 2), (6, 2)]
    assert (result["coverage"]["compared"], result["coverage"]["assumed"]) == (4, 0)
    assert ranks[3]["compute_s"] > 1.2 * ranks[1]["compute_s"]
    assert all(rank["bubble_s"] > 0 for rank in ranks)


WEIGHTS = """
import re, torch
from torch import nn
model = nn.Sequential(*(nn.Linear(16384, 16384, bias=False) for _ in range(8))).to(torch.bfloat16)
small = nn.Linear(16, 16)
batch = torch.randn(1 << 21)
print(float(model[0].weight.abs().sum()), bool(small.weight.abs().sum() > 0), bool(batch.abs().sum() > 0))
mapped = re.findall(r"^Size: +(\\d+) kB.*?^VmFlags: ([^\\n]*)", open("/proc/self/smaps").read(), re.S | re.M)
print(len([size for size, flags in mapped if int(size) > 400_000 and "wr" in flags and "nr" not in flags]))
model.cuda()(torch.ones(1, 16384, device="cuda", dtype=torch.bfloat16))
status = dict(line.split(":") for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) < 1_000_000, int(status["VmPeak"].split()[0]) < 32_000_000)
"""


def test_large_weights_on_the_cpu_take_neither_time_nor_memory(tmp_path: Path) -> None:
    """8 GiB, cast once, in pages that are not reserved; small tensors and batches are real."""
    script, report = tmp_path / "weights.py", tmp_path / "r.json"
    script.write_text(WEIGHTS)
    ended = presim("run", "--gpu", "h100-sxm", "-q", "--json", report, script)
    assert (ended.returncode, ended.stdout) == (0, "0.0 True True\n0\nTrue True\n"), ended.stderr
    notes = json.loads(report.read_text())["notes"]
    assert "Random numbers for 8.00 GiB of weights on the CPU were not drawn: they hold zeros." in notes
