"""A job of two pipeline stages that run one forward and one backward pass in turn."""

from __future__ import annotations

from presim.app.view.panes import Shown
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Gemm

SCHEDULES = ("F F B F B B O", "F B F B F B O")  # one forward, one backward, on two stages
_PHASES = {"F": [Phase.FORWARD], "B": [Phase.RECOMPUTE, Phase.BACKWARD, Phase.RECOMPUTE, Phase.BACKWARD]}


def stage(rank: int, schedule: str) -> Trace:
    """A stage's trace: a message before or behind each pass, and several kernels in it."""
    groups = (Group("pp", (0, 1), 2),)
    build = TraceBuilder(Manifest(2, rank, "h100-sxm", 8, script="", groups=groups))
    for letter in schedule.split():
        is_receiver = letter != "O" and (letter == "F") == (rank == 1)
        message = Collective("recv" if is_receiver else "send", 1 << 20, "bfloat16", 0, peer=1 - rank)
        if is_receiver:
            build.work(message, stream=9)
            build.wait(build.record(stream=9), stream=0)
        for phase in _PHASES.get(letter, [Phase.OPTIMIZER]):
            build.work(Gemm(m=2048, n=2048, k=2048, batch=1, dtype="bfloat16"), stream=0, phase=phase)
        if letter != "O" and not is_receiver:
            build.wait(build.record(stream=0), stream=7)
            build.work(message, stream=7)
    return build.trace()


def two_stages() -> Shown:
    """The job, simulated on two H100s."""
    job = Job.of([stage(rank, schedule) for rank, schedule in enumerate(SCHEDULES)])
    return Shown("two stages", evaluate(job, choose_cluster(gpu="h100-sxm", world_size=2)))
