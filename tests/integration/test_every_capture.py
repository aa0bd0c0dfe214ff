"""Properties of every trace, whatever the script."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from presim.cli import api
from presim.trace import job_store
from presim.trace.schema import COLUMNS, Kind, Phase
from presim.trace.signatures import Kernel
from support.captured import Job, run
from support.long_cases import marked

pytestmark = pytest.mark.torch_cuda

JOBS = {
    "llama 8b": lambda: run("llama_fsdp2.py", "--model", "8b", world_size=128),
    "llama 70b": lambda: run("llama_fsdp2.py", "--model", "70b", world_size=128),
    "llama 70b tp": lambda: run("llama_fsdp2.py", "--model", "70b", "--tensor-parallel", "8", world_size=128),
    "gpt2 ddp": lambda: run("gpt2_ddp.py", world_size=8),
    "vit": lambda: run("vit_huge.py", "--precision", "autocast"),
    "vit checkpointed": lambda: run("vit_huge.py", "--precision", "bf16", "--checkpoint"),
    "out of memory": lambda: run("out_of_memory.py", gpu="a100-40gb-sxm"),
}


@pytest.fixture(params=marked(JOBS, ["llama 70b", "llama 70b tp", "vit", "vit checkpointed"]))
def job(request: pytest.FixtureRequest) -> Job:
    return JOBS[request.param]()


def test_the_peak_of_allocated_memory_is_pytorch_s_own(job: Job) -> None:
    """To the byte: from the trace's allocations and frees, and by PyTorch's statistics."""
    assert job.peak_allocated() == job.trace.manifest.allocator["peak_allocated_bytes"]
    assert job.result.memory.peak_allocated_bytes == job.peak_allocated()
    assert job.result.memory.peak_reserved_bytes == job.trace.manifest.allocator["peak_reserved_bytes"]


def test_no_misuse_is_found(job: Job) -> None:
    """The programs run correctly on GPUs."""
    assert job.result.misuse == []


def test_every_launch_has_an_operator(job: Job) -> None:
    assert all(job.operator(index) for index in job.work(kinds=(Kind.WORK, Kind.COLLECTIVE)))


def test_no_kernel_is_known_by_its_name_only(job: Job) -> None:
    assert not [one for one in job.signatures(job.work()) if isinstance(one, Kernel)]


def test_module_scopes_hold_nearly_all_forward_and_backward_work(job: Job) -> None:
    """By time. Outside are the loss, autograd's work between nodes, and the hooks of DDP and FSDP."""
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        indices = job.work(phase)
        timeline = job.evaluation.timeline
        took = timeline.end_ns[indices] - timeline.start_ns[indices]
        inside = job.trace.column("scope")[indices] >= 0
        assert took[inside].sum() >= 0.8 * took.sum(), phase


def test_steady_steps_are_alike(job: Job) -> None:
    """The second and third step launch the same work and differ only in their memory blocks.

    DDP rebuilds its buckets in the second step, which costs copies of its own.
    """
    steps = job.trace.steps()
    if len(steps) < 3 or "ddp" in job.trace.manifest.script:
        assert len(steps) == 3 or job.result.exit == "out_of_memory"
        return
    for name in ("kind", "phase", "stream", "signature", "scope", "operator"):
        second, third = (job.trace.column(name)[step][_not_memory(job, step)] for step in steps[1:])
        assert np.array_equal(second, third), name


def test_phases_come_in_order(job: Job) -> None:
    """Forward before backward before the optimizer, in every step that ended."""
    for step in job.trace.steps():
        kinds, phases = job.trace.column("kind")[step], job.trace.column("phase")[step]
        of_work = phases[kinds == Kind.WORK]
        first = [int(np.flatnonzero(of_work == phase)[0]) for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)]
        assert first == sorted(first)
        assert not (of_work[first[2] :] == Phase.BACKWARD).any()


def test_two_captures_give_the_same_trace() -> None:
    """Except for the host's time; addresses are compared by the order of their first use.

    Autocast is left out: its cache of weights, by their addresses on the host, frees them in another order each time.
    """
    first, second = JOBS["vit checkpointed"](), run.__wrapped__("vit_huge.py", "--precision", "bf16", "--checkpoint")
    assert first.trace.signatures == second.trace.signatures
    assert first.trace.scopes == second.trace.scopes
    for name in set(COLUMNS) - {"host_ns", "object"}:
        assert np.array_equal(first.trace.column(name), second.trace.column(name)), name
    assert _by_first_use(first) == _by_first_use(second)


def test_two_captures_of_collectives_have_the_same_work() -> None:
    """Only the time when an asynchronous buffer is freed depends on PyTorch's watchdog thread."""
    first, second = run("gpt2_ddp.py", world_size=8), run.__wrapped__("gpt2_ddp.py", world_size=8)
    assert first.trace.signatures == second.trace.signatures
    for name in ("kind", "phase", "stream", "signature", "scope", "operator"):
        one, other = (job.trace.column(name)[_not_memory(job, slice(None))] for job in (first, second))
        assert np.array_equal(one, other), name


def _not_memory(job: Job, step: slice) -> np.ndarray:
    memory = (Kind.ALLOC, Kind.FREE, Kind.RETAG, Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE, Kind.HOST_CALL)
    return ~job.trace.mask(*memory)[step]


def _by_first_use(job: Job) -> list[int]:
    memory = job.trace.mask(Kind.ALLOC, Kind.FREE, Kind.RETAG)
    seen: dict[int, int] = {}
    return [seen.setdefault(address, len(seen)) for address in job.trace.column("object")[memory].tolist()]


def test_a_saved_trace_simulates_for_other_hardware(tmp_path: Path) -> None:
    """Without another capture: the same on its own GPU, slower on older ones, more communication across nodes.

    Host time that was corrected for other load of this machine is corrected again when it is read.
    """
    job = run("gpt2_ddp.py", world_size=8)
    job_store.save([job.trace], tmp_path / "trace")
    captured, again = job.result, api.simulate(tmp_path / "trace")
    older = api.simulate(tmp_path / "trace", gpu="a100-80gb-sxm")
    split = api.simulate(tmp_path / "trace", nodes=2, gpus_per_node=4)
    assert again.step_time_s == pytest.approx(captured.step_time_s, rel=0.03)
    assert older.step_time_s > captured.step_time_s
    assert split.time.communication_s > captured.time.communication_s
