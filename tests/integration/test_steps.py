"""What a step is, in scripts of many shapes. To add a case, add an entry to CASES."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from presim.evaluation.options import RunOptions
from presim.trace.signatures import Gemm
from support import captured, emulated
from support.captured import Job
from support.long_cases import marked

pytestmark = pytest.mark.torch_cuda

PRELUDE = """
import torch
from torch import nn
torch.manual_seed(0)
width = 512
model = nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(2)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def data(rows=1024):
    return torch.randn(rows, width, device="cuda")
def learn(rows=1024, network=model):
    network(data(rows)).square().mean().backward()
def update(of=optimizer):
    of.step()
    of.zero_grad()
"""
FORWARD, LEARN = 2, 5  # products: two layers forward; and backward, where the first needs no gradient of its input


@dataclasses.dataclass(frozen=True)
class Case:
    """A script behind the prelude, and what its steady step is."""

    code: str
    products: int  # in the steady step
    samples: int  # that it reads
    updates: int = 1
    iterations: int = 1
    phases: tuple[tuple[str, int], ...] = ()  # kind and runs of each


CASES = {
    "a plain loop": Case("for _ in range(20):\n    learn()\n    update()", LEARN, 1024),
    "a probe by another optimizer": Case(
        "probe = torch.optim.Adam(model.parameters(), 0.0)\nlearn(64)\nupdate(probe)\n"
        "for _ in range(20):\n    learn()\n    update()",
        LEARN,
        1024,
    ),
    "a new optimizer in every iteration": Case(
        "for _ in range(20):\n    fresh = torch.optim.AdamW(model.parameters())\n    learn()\n    update(fresh)",
        LEARN,
        1024,
    ),
    "an optimizer of one's own": Case(
        "scale = nn.Parameter(torch.ones(1, device='cuda'))\nother = torch.optim.SGD([scale], lr=0.1)\n"
        "for i in range(20):\n    learn()\n    with torch.no_grad():\n        for p in model.parameters():\n"
        "            p.sub_(p.grad, alpha=1e-3)\n            p.grad = None\n"
        "    if i % 4 == 3:\n        (scale * scale).backward()\n        update(other)",
        LEARN,
        1024,
        updates=0,
    ),
    "gradients of functions": Case(
        "names, values = zip(*model.named_parameters())\nvalues = dict(zip(names, (v.detach() for v in values)))\n"
        "def loss(values, x):\n    return torch.func.functional_call(model, values, (x,)).square().mean()\n"
        "for _ in range(20):\n    slopes = torch.func.grad(loss)(values, data())\n"
        "    values = {name: v - 1e-3 * slopes[name] for name, v in values.items()}",
        LEARN,
        1024,
        updates=0,
    ),
    "a penalty on gradients": Case(  # forward, slopes of the input, and backward through both
        "for _ in range(20):\n    x = data().requires_grad_()\n    y = model(x).square().sum()\n"
        "    (slope,) = torch.autograd.grad(y, x, create_graph=True)\n    (y + slope.square().mean()).backward()\n"
        "    update()",
        12,
        1024,
    ),
    "accumulation in an inner loop": Case(
        "for _ in range(8):\n    for _ in range(4):\n        learn()\n    update()",
        4 * LEARN,
        4 * 1024,
        phases=(("loop", 4), ("update", 1)),
    ),
    "accumulation of many micro-batches": Case(
        "for _ in range(3):\n    for _ in range(40):\n        learn()\n    update()",
        40 * LEARN,
        40 * 1024,
        phases=(("loop", 40), ("update", 1)),
    ),
    "accumulation by remainder": Case(
        "for i in range(30):\n    learn()\n    if i % 3 == 2:\n        update()", 3 * LEARN, 3 * 1024, iterations=3
    ),
    "a rollout and mini-batches": Case(
        "for _ in range(6):\n    with torch.no_grad():\n        for _ in range(16):\n            model(data(64))\n"
        "    for _ in range(3):\n        learn()\n        update()",
        16 * FORWARD + 3 * LEARN,
        3 * 1024,
        updates=3,
        phases=(("loop", 16), ("loop", 3)),
    ),
    "a critic's updates before the generator's": Case(
        "critic = nn.Sequential(nn.Linear(width, width, bias=False), nn.Linear(width, 64, bias=False)).cuda()\n"
        "of_critic = torch.optim.SGD(critic.parameters(), lr=1e-3)\n"
        "for _ in range(8):\n    for _ in range(5):\n        learn(256, critic)\n        update(of_critic)\n"
        "    learn()\n    update()",
        6 * LEARN,
        1024,
        updates=6,
        phases=(("loop", 5), ("update", 1)),
    ),
    "epochs in a function": Case(
        "def epoch():\n    for _ in range(6):\n        learn()\n        update()\n"
        "for _ in range(3):\n    epoch()\n    with torch.no_grad():\n        model(data())",
        LEARN,
        1024,
    ),
    "a batch read again with parameters that the script moved": Case(
        "for _ in range(20):\n    x = data()\n    model(x).square().mean().backward()\n    with torch.no_grad():\n"
        "        for p in model.parameters():\n            p.add_(p.grad, alpha=0.05)\n"
        "    optimizer.zero_grad()\n    model(x).square().mean().backward()\n    update()",
        2 * LEARN,
        1024,
    ),
    "accumulation over one tensor": Case(
        "x = data()\nfor i in range(30):\n    model(x).square().mean().backward()\n"
        "    if i % 3 == 2:\n        update()",
        3 * LEARN,
        3 * 1024,
        iterations=3,
    ),
    "accumulation over one tensor by a model that scales its embeddings": Case(
        "model = nn.Sequential(nn.Embedding(100, width, max_norm=1.0), nn.Linear(width, width, bias=False)).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\nx = torch.randint(0, 100, (64, 16), device='cuda')\n"
        "for i in range(30):\n    model(x).square().mean().backward()\n    if i % 3 == 2:\n        update(optimizer)",
        9,
        3 * 64,
        iterations=3,
    ),
    "a trainer's loop": Case(
        "class Trainer:\n    count = 0\n    def fit(self):\n        while self.count < 20:\n"
        "            self.advance()\n"
        "    def advance(self):\n        self.count += 1\n        learn()\n        update()\nTrainer().fit()",
        LEARN,
        1024,
    ),
    "a whole step in a graph": Case(
        "x = data()\nside = torch.cuda.Stream()\nwith torch.cuda.stream(side):\n    for _ in range(3):\n"
        "        model(x).square().mean().backward()\n        update()\ntorch.cuda.synchronize()\n"
        "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    model(x).square().mean().backward()\n"
        "    optimizer.step()\nfor _ in range(30):\n    x.copy_(data())\n    graph.replay()",
        LEARN,
        1024,
    ),
    "no loop": Case("\n".join(["learn()\nupdate()"] * 4), LEARN, 1024),
    "sequences first": Case(
        "rnn = nn.GRU(64, 64).cuda()\noptimizer = torch.optim.SGD(rnn.parameters(), lr=1e-3)\n"
        "for _ in range(20):\n    rnn(torch.randn(50, 8, 64, device='cuda'))[0].sum().backward()\n"
        "    update(optimizer)",
        -1,
        8,
    ),
}


def run(code: str, folder: Path, **options: object) -> Job:
    """Capture a script behind the prelude."""
    script = folder / "script.py"
    script.write_text(PRELUDE + code + "\n")
    return Job(captured.evaluated(script, options=RunOptions(gpu="h100-sxm", **options)))  # type: ignore[arg-type]


def products(job: Job) -> list[int]:
    """Matrix products in each step."""
    signatures, number = job.trace.signatures, job.trace.columns["signature"]
    return [sum(isinstance(signatures[i], Gemm) for i in number[step] if i >= 0) for step in job.trace.steps()]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_steady_step_is_what_the_loop_repeats(case: Case, tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    job = run(case.code, tmp_path)
    steps = job.result.steps
    assert job.result.throughput.samples_per_s is not None
    assert job.result.step_time_s is not None
    samples = job.result.throughput.samples_per_s * job.result.step_time_s
    assert products(job)[steps.steady_index] == case.products or case.products < 0
    assert (round(samples), steps.updates, steps.iterations) == (case.samples, case.updates, case.iterations)
    assert tuple((phase.kind, phase.runs) for phase in steps.phases) == case.phases
    assert not steps.phases or sum(phase.seconds for phase in steps.phases) == pytest.approx(job.result.step_time_s)


@pytest.mark.parametrize("name", ["gradients of functions", "a penalty on gradients"])
def test_gradients_of_gradients_are_no_recomputation(name: str, tmp_path: Path) -> None:
    flops = run(CASES[name].code, tmp_path).result.flops
    assert flops.recomputed == 0
    assert flops.model == flops.executed


def test_a_script_without_modules_steps_by_what_it_launches_again_and_again(tmp_path: Path) -> None:
    job = run(
        "a = torch.randn(512, 512, device='cuda')\nfor _ in range(3):\n    a @ a\n"
        "for _ in range(20):\n    for _ in range(2):\n        b = a @ a\n    torch.relu(b)",
        tmp_path,
    )
    assert products(job)[job.result.steps.steady_index] == 2
    assert job.result.steps.count == 20
    assert "The script calls no module: a step is what it repeats, 3 launches." in job.result.notes


def test_a_loop_that_trains_before_that_of_the_figures_is_named(tmp_path: Path) -> None:
    loop = "for _ in range(4):\n    learn({rows})\n    update()\n"
    job = run(loop.format(rows=64) + loop.format(rows=1024), tmp_path)
    lines = [note.replace(f"{tmp_path}/", "") for note in job.result.notes if "these are not in them" in note]
    begin = PRELUDE.count("\n") + 1
    assert lines == [
        f"The figures describe steps of the loop at script.py:{begin + 3}; these are not in them: "
        f"4 of the loop at script.py:{begin}."
    ]


def test_evaluation_now_and_then_is_seen_and_named(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    code = (
        "for i in range(40):\n    learn(8192)\n    update()\n    if i % 3 == 2:\n"
        "        with torch.no_grad():\n            [model(data(8192)) for _ in range(30)]"
    )
    result = run(code, tmp_path).result
    assert result.steps.mean_s > 1.2 * result.step_time_s
    assert any(note.startswith("Steps differ: mean") and "more forward" in note for note in result.notes)
    assert [(phase.kind, phase.runs, phase.share is None) for phase in result.steps.phases] == [
        ("update", 1, False),
        ("loop", 30, True),
    ]


def test_a_bound_counts_iterations(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    job = run(CASES["a rollout and mini-batches"].code, tmp_path, steps=2)
    assert (len(job.trace.steps()), job.trace.manifest.exit) == (2, "stopped")


def test_work_before_the_loop_belongs_to_no_step(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    code = "learn(8192)\nupdate()\nfor _ in range(20):\n    learn()\n    update()"
    job = run(code, tmp_path, steps=1)
    assert job.result.flops.executed == LEARN * 2 * 1024 * 512**2
    samples = job.result.throughput.samples_per_s * job.result.step_time_s
    assert (job.result.steps.count, round(samples)) == (1, 1024)


@pytest.mark.parametrize(
    ("code", "branch"),
    [
        ("end = time.time() + 300\nwhile time.time() < end:\n    learn()\n    update()", "while"),
        ("for i in range(20):\n    t0 = time.time()\n    learn()\n    update()\n    print(time.time() - t0)", ""),
    ],
)
def test_a_script_that_the_time_of_day_steers_is_named(code: str, branch: str, tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    lines = f"{PRELUDE}import time\n{code}".splitlines()
    expected = [f"{tmp_path}/script.py:{number}." for number, line in enumerate(lines, 1) if branch and branch in line]
    notes = run(f"import time\n{code}", tmp_path).result.notes
    prefix = "The script decides by the time of day at "
    assert [note.removeprefix(prefix).split(" ")[0] for note in notes if note.startswith(prefix)] == expected


@pytest.mark.parametrize("is_prepared", [False, True])
def test_waiting_for_a_thread_of_the_script_is_named(is_prepared: bool, tmp_path: Path) -> None:
    """As the main thread does for batches that a thread prepares in 5 ms; not if all are prepared before the loop."""
    emulated.require_cuda_torch()
    prepare = "def prepare():\n    while asked.get():\n        time.sleep(0.005)\n        batches.put(1)\n"
    prepared = "batches.queue.extend(range(20))\n"
    code = (
        "import queue, threading, time\nasked, batches = queue.Queue(), queue.Queue()\n"
        f"{prepared if is_prepared else prepare + 'threading.Thread(target=prepare, daemon=True).start()'}\n"
        "for _ in range(20):\n    asked.put(1)\n    batches.get()  # waits\n    learn()\n    update()"
    )
    notes = [note for note in run(code, tmp_path).result.notes if note.startswith("The script waited")]
    lines = (tmp_path / "script.py").read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith("# waits"))
    assert len(notes) == (not is_prepared)
    assert all(f" of its own (Queue.get at {tmp_path}/script.py:{number}): this time" in note for note in notes)


def test_all_ranks_stop_after_the_same_step(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    code = (
        "import os, torch.distributed as dist\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n"
        "dist.init_process_group('nccl')\nmodel = nn.parallel.DistributedDataParallel(model.to('cuda'))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
        "for _ in range(60):\n    learn(1024 + 64 * dist.get_rank(), model)\n    update(optimizer)"
    )
    job = run(code, tmp_path, world_size=4)
    assert {len(trace.steps()) for trace in (priced.trace for priced in job.evaluation.ranks.values())} == {12}


SLOW_LOADER = """
import time
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        begin = time.process_time()
        while time.process_time() - begin < 0.02:
            pass
        return torch.zeros(width)
if __name__ == "__main__":  # workers that are spawned import this file
    loader = torch.utils.data.DataLoader(Slow(), batch_size=2, LOADER)
    moments = [time.perf_counter()]
    for x in loader:
        model(x.cuda()).square().mean().backward()
        update()
        moments.append(time.perf_counter())
        if len(moments) > 9:
            open("took", "w").write(str((moments[-1] - moments[-9]) / 8))
"""
STEP_S = 0.04 / 2  # two samples of 20 ms, two workers; on whatever machine this is captured


def run_loader(folder: Path, loader: str, **options: object) -> Job:
    """``loader``: further arguments of the data loader. The script writes the time of a step to the file ``took``."""
    code = SLOW_LOADER.replace("LOADER", loader).replace('"took"', repr(str(folder / "took")))
    return run(code, folder, host_factor=1.0, **options)


@pytest.mark.parametrize("context", marked(["fork", "spawn"], ["spawn"]))
def test_a_slow_loader_limits_the_step(tmp_path: Path, context: str) -> None:
    emulated.require_cuda_torch()
    result = run_loader(tmp_path, f"num_workers=2, multiprocessing_context={context!r}").result
    assert result.step_time_s == pytest.approx(STEP_S, rel=0.25)
    assert result.throughput.samples_per_s == pytest.approx(2 / result.step_time_s)
    assert result.limits[0].name == "data_loading"


@pytest.mark.long
def test_a_live_clock_shows_the_loader_s_time(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    result = run_loader(tmp_path, "num_workers=2", live=True).result
    assert float((tmp_path / "took").read_text()) == pytest.approx(result.step_time_s, rel=0.25)
    assert result.step_time_s == pytest.approx(STEP_S, rel=0.25)


def test_a_loader_without_workers_is_host_time(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    result = run_loader(tmp_path, "num_workers=0").result
    # CPU time of the reference host, which may be several times as fast as this machine beside other work
    assert result.step_time_s > STEP_S / 4
