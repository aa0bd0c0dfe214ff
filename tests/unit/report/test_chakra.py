"""Chakra traces: what is written is read back, in an order that can be replayed, with the time that was simulated."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from presim.cli import main
from presim.cost.price import PricedTrace
from presim.report import chakra
from presim.trace import job_store
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.representatives import Representatives
from presim.trace.schema import Group, Kind
from presim.trace.signatures import Collective, Elementwise
from support import fakes, workloads


@pytest.fixture(scope="module")
def priced() -> PricedTrace:
    return fakes.priced(workloads.llama_8b(steps=1, layers=2))


def nodes(priced: PricedTrace) -> list[object]:
    host = priced.trace.columns["host_ns"].astype(np.int64)
    return chakra.decode(chakra.encode(priced, host))[1]


def attributes(node: object) -> dict[str, object]:
    return {one.name: getattr(one, one.WhichOneof("value")) for one in node.attr}  # type: ignore[attr-defined]


def test_dependencies_are_of_nodes_that_came_before(priced: PricedTrace) -> None:
    """A simulator can replay the file as it reads it."""
    seen: set[int] = set()
    for node in nodes(priced):
        assert {*node.ctrl_deps, *node.data_deps} <= seen  # type: ignore[attr-defined]
        seen.add(node.id)  # type: ignore[attr-defined]


def test_all_device_work_is_there_with_its_time(priced: PricedTrace) -> None:
    """Rounding to microseconds takes less than one of each stream."""
    trace = priced.trace
    device = [node for node in nodes(priced) if not attributes(node)["is_cpu_op"]]
    assert len(device) == int(trace.mask(Kind.WORK, Kind.COLLECTIVE).sum())
    for stream in np.unique(trace.columns["stream"]).tolist():
        mine = (trace.columns["stream"] == stream) & trace.mask(Kind.WORK, Kind.COLLECTIVE)
        written = sum(
            node.duration_micros  # type: ignore[attr-defined]
            for node in device
            if attributes(node)["stream"] == stream
        )
        assert 0 <= priced.durations_ns()[mine].sum() / 1000 - written < 1


def test_host_time_is_there_within_a_microsecond(priced: PricedTrace) -> None:
    host = [node for node in nodes(priced) if attributes(node)["is_cpu_op"]]
    whole = priced.trace.columns["host_ns"].sum() / 1000
    assert 0 <= whole - sum(node.duration_micros for node in host) < 1  # type: ignore[attr-defined]


def test_collectives_have_what_a_feeder_reads(priced: PricedTrace) -> None:
    found = [node for node in nodes(priced) if node.type == 7]  # type: ignore[attr-defined]
    assert found
    for node in found:
        said = attributes(node)
        assert said["comm_size"] > 0  # type: ignore[operator]
        assert said["comm_type"] in (0, 2, 7)
        assert int(str(said["pg_name"])) >= 1


def test_messages_have_ends_and_are_counted_by_pair() -> None:
    """A send and its receive have the same ends and tag."""
    built = {}
    for rank, kind in ((4, "send"), (9, "recv")):
        manifest = default_manifest()
        groups = (Group("pp", (4, 9), 2),)
        manifest = type(manifest)(world_size=16, rank=rank, gpu="h100-sxm", gpus_per_node=8, script="", groups=groups)
        builder = TraceBuilder(manifest)
        for _ in range(2):
            builder.work(Collective(kind, 1024, "bfloat16", 0, peer=1 if kind == "send" else 0))
        built[rank] = [attributes(node) for node in nodes(fakes.priced(builder.trace()))]
    ends = [[(said["comm_src"], said["comm_dst"], said["comm_tag"]) for said in built[rank]] for rank in (4, 9)]
    assert ends[0] == ends[1] == [(4, 9, 0), (4, 9, 1)]


def test_groups_have_numbers_that_all_ranks_agree_on(tmp_path: Path) -> None:
    """ASTRA-sim knows groups by integers; ranks may call one group by different names, and several ones alike."""
    ranks = {}
    for rank, names in ((0, ("tp", "dp")), (1, ("tp", "data"))):
        groups = (Group(names[0], (rank // 2 * 2, rank // 2 * 2 + 1), 2), Group(names[1], (0, 1, 2, 3), 4))
        manifest = type(default_manifest())(4, rank, "h100-sxm", 8, script="", groups=groups)
        builder = TraceBuilder(manifest)
        for group in range(2):
            builder.work(Collective("all_reduce", 1024, "bfloat16", group))
        ranks[rank] = fakes.priced(builder.trace())
    ranks[2] = fakes.priced(
        TraceBuilder(type(manifest)(4, 2, "h100-sxm", 8, script="", groups=(Group("tp", (2, 3), 2),))).trace()
    )
    host = {rank: priced.trace.columns["host_ns"].astype(np.int64) for rank, priced in ranks.items()}
    chakra.write(ranks, host, Representatives([0, 1, 2]), tmp_path)
    assert json.loads((tmp_path / "presim.comm_groups.json").read_text()) == {
        "1": [0, 1],
        "2": [0, 1, 2, 3],
        "3": [2, 3],
    }
    used = [
        [attributes(node)["pg_name"] for node in chakra.decode((tmp_path / f"presim.{rank}.et").read_bytes())[1]]
        for rank in (0, 1)
    ]
    assert used == [["1", "2"], ["1", "2"]]


def test_a_wait_becomes_a_dependency() -> None:
    builder = TraceBuilder()
    builder.work(Elementwise(4, 4, 4, "float32"), stream=0)
    event = builder.record(stream=0)
    builder.wait(event, stream=3)
    builder.work(Elementwise(8, 8, 8, "float32"), stream=3)
    first, second = nodes(fakes.priced(builder.trace()))
    assert list(second.data_deps) == [first.id]  # type: ignore[attr-defined]


def test_the_same_job_gives_the_same_bytes(priced: PricedTrace, tmp_path: Path) -> None:
    host = {0: priced.trace.columns["host_ns"].astype(np.int64)}
    written = []
    for name in ("a", "b"):
        files = chakra.write({0: priced}, host, Representatives([0]), tmp_path / name)
        written.append([file.read_bytes() for file in files])
    assert written[0] == written[1]


def test_the_command_line_writes_a_file_for_each_rank(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    job_store.save([workloads.llama_8b(steps=2, layers=2)], tmp_path / "job")
    out = tmp_path / "et"
    assert main.run(["simulate", str(tmp_path / "job"), "-q", "--chakra", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "presim.0.et",
        "presim.comm_groups.json",
        "presim.groups.json",
    ]
    groups = json.loads((out / "presim.groups.json").read_text())
    assert groups["groups"] == json.loads((out / "presim.comm_groups.json").read_text())
    assert groups["names"].keys() == groups["groups"].keys()
    assert groups["ranks_like"] == {"0": 1} or groups["ranks_like"]["0"] >= 1
    capsysbinary.readouterr()


def test_every_rank_of_the_world_has_a_file_in_its_own_groups(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A rank that is simulated for others is written for each of them; collectives of a group are of all its ranks."""
    job, out = str(tmp_path / "job"), tmp_path / "et"
    plan = ["--gpu", "h100-sxm", "--world-size", "8", "--seq", "512", "--tp", "2", "--pp", "2", "--global-batch", "8"]
    plan += ["--framework", "eager"]
    assert main.run(["compose", "llama3-1b", *plan, "--save", job, "-q"]) == 0
    assert main.run(["simulate", job, "--ranks-simulated", "all", "--chakra", str(out), "-q"]) == 0
    groups = json.loads((out / "presim.comm_groups.json").read_text())
    calls: dict[str, Counter[int]] = {number: Counter() for number in groups}
    messages: Counter[tuple[int, int, int]] = Counter()
    for rank in range(8):
        for node in chakra.decode((out / f"presim.{rank}.et").read_bytes())[1]:
            values = attributes(node)
            if "comm_type" in values:
                calls[str(values["pg_name"])][rank] += 1
            elif "comm_src" in values:
                pair = (int(str(values[name])) for name in ("comm_src", "comm_dst", "comm_tag"))
                messages[next(pair), next(pair), next(pair)] += 1
    assert {number: sorted(by_rank) for number, by_rank in calls.items() if by_rank} == {
        number: groups[number] for number, by_rank in calls.items() if by_rank
    }
    assert all(len(set(by_rank.values())) <= 1 for by_rank in calls.values())
    assert set(messages.values()) == {2}  # one sends, the other receives
    capsysbinary.readouterr()
