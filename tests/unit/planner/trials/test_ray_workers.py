"""A search on a Ray cluster of two nodes gives the answer of local processes, also where a worker is killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from presim.errors import InputError
from presim.planner.objectives import OBJECTIVES
from presim.planner.run_search import run
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space
from presim.planner.trials.ray_workers import RayWorkers
from presim.planner.trials.trial_messages import Subject
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


def request(study: Path) -> SearchRequest:
    graph, objective = msgspec.msgpack.encode(llama()), OBJECTIVES["step_time"]
    return SearchRequest(
        subject="llama",
        space=SPACE,
        objectives=[objective],
        graph=graph,
        study=str(study),
        prune=["none"],
    )


@pytest.mark.torch_cuda
@pytest.mark.needs("ray")
def test_two_nodes_answer_as_a_local_process_does_though_a_worker_is_killed(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRESIM_CACHE_MB", "0")
    workers: list[RayWorkers] = []
    nodes: set[str] = set()

    class Watched(RayWorkers):
        def __enter__(self) -> RayWorkers:
            workers.append(self)
            return super().__enter__()

    def kill(text: str) -> None:
        """One of the two, as soon as a trial is finished."""
        if not nodes:
            about = workers[0].about()
            nodes.update(node for _, _, node in about)
            os.kill(about[0][1], signal.SIGKILL)

    monkeypatch.setattr("presim.planner.trials.ray_workers.RayWorkers", Watched)
    far = run(dataclasses.replace(request(tmp_path / "far"), ray=address, jobs=0), kill)
    assert len(nodes) == 2
    assert [trial.fate for trial in far.trials] == ["priced"] * len(SPACE)
    assert run(request(tmp_path / "local")) == far
    assert run(request(tmp_path / "far")) == far  # from the study


@pytest.mark.needs("ray")
@pytest.mark.parametrize("protocol", ["", "ray://"])
def test_an_address_where_nobody_listens_is_refused_at_once(protocol: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"{protocol}127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError) as error, RayWorkers(Subject(), address):
            pass
    assert str(error.value) == (
        f"no Ray cluster at {address} accepts this search ([Errno 111] Connection refused); start one with `ray start "
        "--head`, or leave out --ray"
    )
