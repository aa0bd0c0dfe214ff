"""What-if changes of a prediction."""

from __future__ import annotations

import pytest

from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.what_if import Changes, changes_of
from presim.hardware import choose_cluster
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Gemm

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=4)
WORLD = 32
GEMM = Gemm(m=8192, n=8192, k=8192, batch=1, dtype="bfloat16")


def trace() -> Trace:
    group = Group("world", tuple(range(WORLD)), WORLD)
    build = TraceBuilder(
        Manifest(world_size=WORLD, rank=0, gpu="h100-sxm", gpus_per_node=8, script="", groups=(group,))
    )
    for _ in range(2):
        build.work(GEMM, phase=Phase.FORWARD)
        build.work(Collective("all_reduce", 1 << 30, "float32", group=0), phase=Phase.BACKWARD)
        build.step()
    return build.trace()


def predicted(changes: Changes) -> Evaluation:
    options = Options.of(host_factor=0.0, host_time=False)
    return evaluate(Job.of(trace(), stands_for={0: range(1, WORLD)}), CLUSTER, options, changes=changes)


def durations(evaluation: Evaluation) -> tuple[int, int]:
    """Of the product and of the collective, as rank 0 has them."""
    product, reduction = evaluation.priced.prices
    return product.duration_ns, reduction.duration_ns


def test_a_slow_node_makes_all_wait_for_it() -> None:
    """Its GPUs are one rank more to simulate; the others wait for what it takes longer."""
    usual, slow = predicted(Changes()), predicted(changes_of((), ("node3=0.5",), ()))
    assert sorted(slow.timelines) == [0, 24]
    assert slow.result.ranks[0].represented == 24
    assert slow.result.ranks[1].represented == 8
    product, _ = durations(usual)
    assert slow.timelines[0].makespan_ns - usual.timelines[0].makespan_ns == 2 * product
    assert "What if: node 3 at 0.5 of its speed." in slow.result.notes
    assert "2 ranks were simulated, 1 of them with the trace of another rank." in slow.result.notes
    assert slow.result.coverage == usual.result.coverage


def test_bandwidth_between_nodes_shortens_what_crosses_them() -> None:
    usual, fast = predicted(Changes()), predicted(changes_of(("inter=0.5x",), (), ()))
    assert durations(fast)[0] == durations(usual)[0]
    assert 1.5 * durations(usual)[1] < durations(fast)[1] < 2.1 * durations(usual)[1]


def test_operators_take_a_factor_of_their_time() -> None:
    usual, fast = predicted(Changes()), predicted(changes_of((), (), ("gemm=0.5", "all_reduce=3")))
    assert durations(fast) == (round(durations(usual)[0] * 0.5), durations(usual)[1] * 3)


def test_nothing_changed_is_nothing_said() -> None:
    assert not Changes()
    assert not any("What if" in note for note in predicted(Changes()).result.notes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((("outer=2",), (), ()), "--bandwidth outer: there are inter (between nodes) and intra (within a node)"),
        ((("inter=0",), (), ()), "--bandwidth takes NAME=FACTOR with a factor from 0.001 to 1000; got 'inter=0'"),
        ((("inter",), (), ()), "--bandwidth takes NAME=FACTOR with a factor from 0.001 to 1000; got 'inter'"),
        ((("inter=2", "inter=3"), (), ()), "--bandwidth inter is given twice; leave one of them"),
        (((), ("rack1=0.5",), ()), "--straggler takes node3=0.8 or rank17=0.8; got the name 'rack1'"),
        (((), ("node4=0.5",), ()), "--straggler node4: the cluster has 4 nodes, numbered from 0; name one below 4"),
        (((), (), ("conv=2",)), "--scale-op conv: the job has no such work; name one of all_reduce, collective, gemm"),
    ],
)
def test_what_cannot_be_changed_is_one_sentence(given: tuple[tuple[str, ...], ...], message: str) -> None:
    with pytest.raises(InputError) as error:
        predicted(changes_of(*given))
    assert str(error.value) == message
