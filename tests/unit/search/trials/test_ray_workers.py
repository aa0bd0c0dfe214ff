"""A search on a Ray cluster of two nodes gives the answer of local processes, also where a worker is killed."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from presim.errors import InputError
from presim.search.objectives import OBJECTIVES
from presim.search.request import Request
from presim.search.run import run
from presim.search.space import Space
from presim.search.study import Answer
from presim.search.trials.job import Job
from presim.search.trials.ray_workers import RayWorkers
from support.models import llama

SPACE = Space({"micro_batch": (1, 2), "recompute": ("none", "full")}, {"sequence": 256, "gpu": "h100-sxm", "nodes": 1})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two nodes with a CPU each, on this machine."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


def request(study: Path) -> Request:
    graph = msgspec.msgpack.encode(llama())
    return Request(
        subject="llama", space=SPACE, objectives=[OBJECTIVES["step_time"]], graph=graph, study=str(study), jobs=1
    )


@pytest.mark.slow
@pytest.mark.torch_cuda
@pytest.mark.needs("ray")
def test_two_nodes_answer_as_local_processes_do_though_a_worker_is_killed(address: str, tmp_path: Path) -> None:
    local = run(request(tmp_path / "local"))
    far = dataclasses.replace(request(tmp_path / "far"), ray=address, jobs=0)
    assert run(far) == local
    points = list(SPACE)
    with RayWorkers(Job(graph=far.graph), address) as workers:
        replies = workers.evaluate(points)
        first = next(replies)
        about = workers.about()
        assert len({node for _, _, node in about}) == 2
        for _, process, _ in about:
            os.kill(process, signal.SIGKILL)
        found = dict([first, *replies])
    assert [found[place].figures for place in range(len(points))] == [trial.figures for trial in local.trials]
    assert again(far) == local


def again(far: Request) -> Answer:
    """From the study alone: there is no such cluster."""
    return run(dataclasses.replace(far, ray=None))


@pytest.mark.needs("ray")
def test_an_address_without_a_cluster_is_refused() -> None:
    with pytest.raises(InputError) as error, RayWorkers(Job(), "ray://"):
        pass
    assert str(error.value).startswith("no Ray cluster at ray:// takes this search (")
