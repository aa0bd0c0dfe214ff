"""Two traces of one program have the same host time where they do the same."""

from __future__ import annotations

from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Phase
from presim_study.shared_host import HostTimes
from support.replanned_programs import kernel


def job_of(layers: int, host_ns: list[int], *, has_loss: bool = False) -> Job:
    """Two steps of layers; ``host_ns``: before the first and the second kernel of each layer of the last step."""
    build = TraceBuilder()
    for times in ([1000, 1000], host_ns):
        for layer in range(layers):
            for part, time_ns in enumerate(times):
                name = f"model.layers.{layer}.mlp"
                build.work(kernel(part), host_ns=time_ns + layer, scope=name, phase=Phase.FORWARD)
        if has_loss:
            build.work(kernel(9), host_ns=77, phase=Phase.FORWARD)
        build.step()
    return Job.of(build.trace())


def host_times(job: Job) -> list[int]:
    trace = job.traces[0]
    return trace.columns["host_ns"][trace.steps()[-1]].tolist()


def test_calls_have_the_mean_host_time_of_their_kind() -> None:
    """Layers are of one kind, and the first step has no say."""
    captured, composed = job_of(3, [10, 20]), job_of(5, [500, 900])
    times = HostTimes(captured)
    assert host_times(times.applied(captured)) == [11, 21] * 3 + [0]
    assert host_times(times.applied(composed)) == [11, 21] * 5 + [0]


def test_calls_that_one_job_has_alone_keep_their_time() -> None:
    times = HostTimes(job_of(1, [10, 20]))
    assert host_times(times.applied(job_of(1, [5, 5], has_loss=True))) == [10, 20, 77, 0]
