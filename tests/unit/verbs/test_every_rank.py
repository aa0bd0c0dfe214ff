"""Every rank of the world simulated by itself, with and without jitter."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.evaluation.options import SimulateOptions
from presim.evaluation.what_if import Changes, changes_of
from presim.hardware import choose_cluster
from presim.result import EveryRank
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from presim.trace.schema import Group, Manifest, Phase, Trace
from presim.trace.signatures import Collective, Gemm
from presim.verbs.every_rank import jitter_of, with_every_rank

CLUSTER = choose_cluster(gpu="h100-sxm", nodes=4)
WORLD = 32


def trace(rank: int = 0, tensor: int = 1) -> Trace:
    """Three steps of a product, an exchange within the node where there is one, and a reduction over all nodes."""
    near = tuple(range(rank // tensor * tensor, rank // tensor * tensor + tensor))
    far = tuple(range(rank % tensor, WORLD, tensor))
    groups = (Group("world", tuple(range(WORLD)), WORLD), Group("tp", near, tensor), Group("dp", far, len(far)))
    build = TraceBuilder(
        Manifest(world_size=WORLD, rank=rank, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups)
    )
    for _ in range(3):
        build.work(Gemm(m=8192, n=8192, k=8192, batch=1, dtype="bfloat16"), host_ns=20_000, phase=Phase.FORWARD)
        if tensor > 1:
            build.work(Collective("all_reduce", 1 << 24, "bfloat16", group=1), host_ns=10_000, phase=Phase.FORWARD)
        build.work(Collective("all_reduce", 1 << 28, "float32", group=2), host_ns=10_000, phase=Phase.BACKWARD)
        build.step()
    return build.trace()


def predicted(changes: Changes | None = None, tensor: int = 1) -> Evaluation:
    return evaluate(
        Job.of(trace(tensor=tensor), stands_for={0: range(1, WORLD)}),
        CLUSTER,
        Options(host_factor=1.0),
        changes=changes,
    )


def every(evaluation: Evaluation, *jitter: str, **options: int) -> EveryRank:
    asked = SimulateOptions(ranks_simulated="all", jitter=jitter, **options)  # type: ignore[arg-type]
    found = with_every_rank(evaluation, CLUSTER, asked).result.every_rank
    assert found is not None
    return found


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("slow", [(), ("node2=0.7",), ("rank5=0.5", "rank17=0.9")])
def test_all_ranks_come_to_what_those_that_differ_come_to(tensor: int, slow: tuple[str, ...]) -> None:
    """Symmetry changes the work of the simulation, not its answer."""
    evaluation = predicted(changes_of((), slow, ()), tensor)
    told = every(evaluation)
    assert told.ranks_simulated == WORLD
    assert told.step_time_s == evaluation.result.step_time_s
    assert told.mean_s is None
    assert told.step_times_s == []


def test_gpus_that_vary_make_all_wait_for_the_slowest() -> None:
    evaluation = predicted()
    told = every(evaluation, "gpus=0.05", jitter_draws=5, seed=3)
    product = evaluation.priced.prices[0].duration_ns
    width = np.sqrt(np.log1p(0.05**2))
    drawn = [np.random.default_rng([3, draw, 1]).standard_normal(WORLD) for draw in range(5)]
    slowest = [float(np.exp(width * each - width**2 / 2).max()) for each in drawn]
    wanted = [told.step_time_s + product * (factor - 1) / 1e9 for factor in slowest]
    # The step before ends on the last rank too, so that each step has the slowest GPU's product in it.
    assert told.step_times_s == pytest.approx(wanted, rel=1e-3)
    assert {one.rank for one in told.stragglers} == {int(np.argmax(each)) for each in drawn}
    assert told.p10_s is not None
    assert told.p90_s is not None
    assert told.step_time_s < told.p10_s < told.p90_s


def test_the_slowest_link_sets_the_time_of_collectives_between_nodes() -> None:
    evaluation = predicted(tensor=8)
    told = every(evaluation, "links=0.1", jitter_draws=4)
    assert told.mean_s is not None
    assert told.mean_s > told.step_time_s
    within = dataclasses.replace(evaluation, ranks={0: evaluation.ranks[0]})
    one_node = choose_cluster(gpu="gb200", nodes=8)  # one rack that NVLink joins: nothing leaves it
    found = with_every_rank(within, one_node, SimulateOptions(jitter=("links=0.1",))).result.every_rank
    assert found is not None
    assert set(found.step_times_s) == {found.step_time_s}


def test_no_spread_changes_nothing_and_a_seed_repeats_itself() -> None:
    evaluation = predicted()
    still = every(evaluation, "hosts=0,gpus=0 links=0", jitter_draws=2)
    assert still.step_times_s == [still.step_time_s] * 2
    assert still.stragglers == []
    first, again, other = (every(evaluation, "gpus=0.1", jitter_draws=3, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.step_times_s != other.step_times_s


def test_a_note_tells_the_ranks_and_the_spread() -> None:
    asked = SimulateOptions(jitter=("gpus=0.1",), jitter_draws=2)
    note = with_every_rank(predicted(), CLUSTER, asked).result.notes[0]
    assert note.startswith("All 32 ranks were simulated, each by itself: a step takes ")
    assert "(gpus 0.1; mean of 2 draws, seed 0; 10th to 90th percentile" in note


def test_without_being_asked_nothing_is_done() -> None:
    evaluation = predicted()
    assert with_every_rank(evaluation, CLUSTER, SimulateOptions()) is evaluation


@pytest.mark.parametrize("text", ["hosts", "disks=0.1", "hosts=-0.1", "hosts=much", "links=2"])
def test_a_jitter_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--jitter takes NAME=X with a relative standard deviation from 0 to 1"):
        jitter_of((text,))


def test_what_is_given_twice_or_not_known_is_refused() -> None:
    with pytest.raises(InputError, match="--jitter hosts is given twice"):
        jitter_of(("hosts=0.1", "hosts=0.2"))
    alone = evaluate(Job.of(trace()), CLUSTER, Options(host_factor=1.0))
    with pytest.raises(InputError, match=r"31 of 32 ranks, e\.g\. rank 1, are not known"):
        every(alone)


def test_the_budget_decides_how_many_draws_may_be_made() -> None:
    evaluation = predicted()
    jittered = SimulateOptions(jitter=("gpus=0.1",), jitter_draws=20, budget="0.01s")
    with pytest.raises(
        InputError, match=r"^20 draws of --jitter-draws would take .*, or raise --budget, e\.g\. --budget 2h$"
    ):
        with_every_rank(evaluation, CLUSTER, jittered)
    with_every_rank(evaluation, CLUSTER, dataclasses.replace(jittered, budget="1h"))
