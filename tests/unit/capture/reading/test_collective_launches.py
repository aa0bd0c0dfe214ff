"""Collectives: their groups, and which calls were one launch."""

from __future__ import annotations

import pytest

from presim.capture.reading.collective_launches import Communication, parse_ranks
from presim.trace.collective import Collective, Routed, Splits
from presim.trace.schema import Group, Kind
from support.capture_logs import LogBuilder


def collective(kind: str, size: int, comm: int = 0, peer: int = -1) -> str:
    return f"collective kind={kind} bytes={size} dtype=bf16 comm={comm} peer={peer}"


def signatures(build: LogBuilder) -> tuple[list[Collective], tuple[Group, ...]]:
    """All collectives after coalescing, and their groups."""
    communication = Communication(build.log())
    records = communication.merge_coalesced(build.records())
    kept = records[records["kind"] == Kind.COLLECTIVE]
    found = [communication.signature(int(record["work"]), int(record["op"])) for record in kept]
    return found, communication.groups()


def named_group(build: LogBuilder, name: str, ranks: str, size: int, desc: str = "undefined") -> str:
    """The operator text of a PyTorch call on a group."""
    group = build.text(f"group name={name} size={size} ranks={ranks} desc={desc}")
    return f"op name=record_param_comms in= out= args={group}"


def test_groups_are_numbered_in_the_order_of_first_use() -> None:
    build = LogBuilder()
    shard, replicate = (
        named_group(build, name, ranks, 2, desc)
        for name, ranks, desc in (("1", "0,1", "mesh_shard"), ("2", "0,8", "mesh_replicate"))
    )
    for launch, op in enumerate((replicate, shard, replicate)):
        build.record(Kind.COLLECTIVE, work=collective("all_gather", 100), op=op, object=launch)
    found, groups = signatures(build)
    assert [call.group for call in found] == [0, 1, 0]
    assert groups == (Group("mesh_replicate", (0, 8), 2), Group("mesh_shard", (0, 1), 2))


def test_groups_with_the_same_description_are_distinct() -> None:
    """Two meshes may both have a dimension called dp."""
    build = LogBuilder()
    for launch, (name, ranks) in enumerate((("1", "0,1"), ("2", "0,2"))):
        op = named_group(build, name, ranks, 2, "mesh_dp")
        build.record(Kind.COLLECTIVE, work=collective("all_reduce", 100), op=op, object=launch)
    found, groups = signatures(build)
    assert [call.group for call in found] == [0, 1]
    assert [group.ranks for group in groups] == [(0, 1), (0, 2)]


def test_a_group_without_a_description_is_named_by_its_number() -> None:
    build = LogBuilder()
    build.record(Kind.COLLECTIVE, work=collective("broadcast", 4, peer=0), op=named_group(build, "7", "0:128:1", 128))
    assert signatures(build)[1] == (Group("group 7", tuple(range(128)), 128),)


def test_the_default_group_has_the_name_of_a_mesh_that_splits_the_model_over_all_ranks() -> None:
    """PyTorch gives a mesh of one dimension its default group, whose name does not say that ranks share data."""
    build = LogBuilder()
    op = named_group(build, "0", "0,1", 2, "default_pg")
    build.record(Kind.COLLECTIVE, work=collective("all_reduce", 100), op=op)
    assert [group.name for group in signatures(build)[1]] == ["default_pg"]
    build.text("mesh dimension=tp")
    assert signatures(build)[1] == (Group("mesh_tp", (0, 1), 2),)


def test_a_call_outside_pytorch_is_assigned_by_its_communicator() -> None:
    build = LogBuilder()
    build.notes.append("communicator serial=3 size=16 rank=2 parent=-1")
    build.record(Kind.COLLECTIVE, work=collective("all_reduce", 64, comm=3))
    assert signatures(build) == (
        [Collective("all_reduce", 64, "bfloat16", 0)],
        (Group("communicator 3", (), 16),),
    )


def test_communicators_of_one_process_are_told_from_those_of_ranks() -> None:
    """One process makes all of the first, as `torch.nn.DataParallel` does, and its own rank of the second."""
    for second_id, is_within in (("a", True), ("b", False)):
        build = LogBuilder()
        build.notes += [
            "communicator serial=0 size=2 rank=0 parent=-1 unique_id=a",
            f"communicator serial=1 size=2 rank=1 parent=-1 unique_id={second_id}",
        ]
        build.record(Kind.COLLECTIVE, work=collective("all_reduce", 64, comm=0))
        assert [group.is_within_process for group in signatures(build)[1]] == [is_within]


def test_scalars_of_other_operators_are_not_groups() -> None:
    """An operator's only scalar may be any number, also one beyond the table of texts."""
    build = LogBuilder()
    build.record(
        Kind.COLLECTIVE, work=collective("send", 8, peer=1), op="op name=my::ring_attention in= out= args=8192"
    )
    assert [group.name for group in signatures(build)[1]] == ["communicator 0"]


def test_calls_of_one_launch_are_one_collective() -> None:
    build = LogBuilder()
    for size in (100, 200, 300):
        build.record(Kind.COLLECTIVE, work=collective("all_gather", size), object=5)
    build.record(Kind.COLLECTIVE, work=collective("all_gather", 7), object=6)
    found, _ = signatures(build)
    assert found == [
        Collective("all_gather", 600, "bfloat16", 0, fused=3),
        Collective("all_gather", 7, "bfloat16", 0),
    ]


def test_calls_on_other_streams_or_communicators_are_separate_launches() -> None:
    build = LogBuilder()
    build.record(Kind.COLLECTIVE, work=collective("all_reduce", 1, comm=0), object=5, stream=1)
    build.record(Kind.COLLECTIVE, work=collective("all_reduce", 2, comm=0), object=5, stream=2)
    build.record(Kind.COLLECTIVE, work=collective("all_reduce", 4, comm=1), object=5, stream=2)
    found, _ = signatures(build)
    assert [(call.bytes, call.group, call.fused) for call in found] == [(1, 0, 1), (2, 0, 1), (4, 1, 1)]


def test_sends_and_receives_with_all_peers_are_an_all_to_all() -> None:
    """The bytes are those that this rank sends; unequal parts are listed by group rank."""
    for first, splits in ((100, None), (90, Splits(2, (90, 100, 100, 100), (50,) * 4))):
        build = LogBuilder()
        build.notes.append("communicator serial=0 size=4 rank=2 parent=-1")
        for peer in range(4):
            build.record(Kind.COLLECTIVE, work=collective("send", 100 if peer else first, peer=peer), object=9)
            build.record(Kind.COLLECTIVE, work=collective("recv", 50 if splits else 100, peer=peer), object=9)
        assert signatures(build)[0] == [Collective("all_to_all", 300 + first, "bfloat16", 0, splits=splits)]


def test_pytorch_s_all_to_all_is_recognised_whatever_a_rank_sends() -> None:
    """With few tokens, a rank may send to only one peer and receive nothing."""
    build = LogBuilder()
    build.notes.append("communicator serial=0 size=4 rank=3 parent=-1")
    group = build.text("group name=0 size=4 ranks=0:4:1 call=all_to_allv desc=undefined")
    op = f"op name=record_param_comms in= out= args={group}"
    build.record(Kind.COLLECTIVE, work=collective("send", 100, peer=1), op=op, object=9)
    splits = Splits(3, (0, 100, 0, 0), (0,) * 4)
    assert signatures(build)[0] == [Collective("all_to_all", 100, "bfloat16", 0, splits=splits)]


@pytest.mark.parametrize(("call", "root", "other"), [("gather", "recv", "send"), ("scatter", "send", "recv")])
def test_a_gather_is_one_collective_on_the_root_and_the_others(call: str, root: str, other: str) -> None:
    """PyTorch implements it with sends and receives; the message size is that of all ranks."""
    found = []
    for rank, kind, peers in ((1, root, (0, 2)), (2, other, (1,))):
        build = LogBuilder()
        build.notes.append(f"communicator serial=0 size=3 rank={rank} parent=-1")
        group = build.text(f"group name=0 size=3 ranks=0:3:1 call={call} desc=undefined")
        for peer in peers:
            op = f"op name=record_param_comms in= out= args={group}"
            build.record(Kind.COLLECTIVE, work=collective(kind, 10, peer=peer), op=op, object=1)
        found += signatures(build)[0]
    assert found == [Collective(call, 30, "bfloat16", 0, peer=1)] * 2


def test_an_all_to_all_of_two_ranks_is_one() -> None:
    """A message to itself distinguishes it from an exchange with the other rank; each is half of the bytes."""
    build = LogBuilder()
    op = named_group(build, "ep", "0,4", 2, "ep")
    for peer in range(2):
        for kind in ("send", "recv"):
            build.record(Kind.COLLECTIVE, work=collective(kind, 100, peer=peer), op=op, object=1)
    assert signatures(build)[0] == [Collective("all_to_all", 200, "bfloat16", 0)]


def test_an_exchange_with_one_peer_has_the_larger_direction() -> None:
    build = LogBuilder()
    build.record(Kind.COLLECTIVE, work=collective("send", 100, peer=3), object=9)
    build.record(Kind.COLLECTIVE, work=collective("recv", 700, peer=3), object=9)
    assert signatures(build)[0] == [Collective("send_recv", 700, "bfloat16", 0, peer=3, fused=2)]


def test_messages_of_one_launch_with_two_neighbours_are_one_for_each() -> None:
    """As in the middle of an interleaved pipeline; the launch they share is what makes them run at the same time."""
    build = LogBuilder()
    op = named_group(build, "pp", "0:4:1", 4, "pp")
    calls = (("send", 2), ("recv", 0), ("send", 0), ("recv", 2), ("send", 2))
    for kind, peer in calls[:2]:
        build.record(Kind.COLLECTIVE, work=collective(kind, 100, peer=peer), op=op, object=1)
    for kind, peer in calls[2:]:
        build.record(Kind.COLLECTIVE, work=collective(kind, 100, peer=peer), op=op, object=2)
    assert signatures(build)[0] == [
        Collective("send", 100, "bfloat16", 0, peer=2),
        Collective("recv", 100, "bfloat16", 0, peer=0),
        Collective("send", 100, "bfloat16", 0, peer=0),
        Collective("send_recv", 100, "bfloat16", 0, peer=2, fused=2),
    ]


def test_the_last_record_of_a_launch_stays_and_others_are_untouched() -> None:
    """NCCL launches at the end of the group; entries in between keep their place."""
    build = LogBuilder()
    build.record(Kind.COLLECTIVE, work=collective("all_gather", 1), object=5, cpu_ns=10)
    build.record(Kind.WORK, work="memset bytes=4", cpu_ns=20)
    build.record(Kind.COLLECTIVE, work=collective("all_gather", 1), object=5, cpu_ns=30)
    records = Communication(build.log()).merge_coalesced(build.records())
    assert records["cpu_ns"].tolist() == [20, 30]


@pytest.mark.parametrize(("text", "ranks"), [("0,3,5", (0, 3, 5)), ("0:8:2", (0, 2, 4, 6)), ("4", (4,)), ("", ())])
def test_ranks_are_listed_or_evenly_spaced(text: str, ranks: tuple[int, ...]) -> None:
    assert parse_ranks(text) == ranks


def test_broadcasts_from_every_rank_in_one_group_are_an_all_gather() -> None:
    """PyTorch gathers into separate tensors by one broadcast per rank; broadcasts from one root stay broadcasts."""
    build = LogBuilder()
    for root in range(4):
        build.record(Kind.COLLECTIVE, work=collective("broadcast", 16, peer=root), object=1)
    for _ in range(2):
        build.record(Kind.COLLECTIVE, work=collective("broadcast", 16, peer=0), object=2)
    found, _ = signatures(build)
    assert [(call.kind, call.bytes, call.fused) for call in found] == [("all_gather", 64, 1), ("broadcast", 32, 2)]


@pytest.mark.parametrize(("said", "spread"), [("", ()), ("5.75,3.5,2,1", (5.75, 3.5, 2.0, 1.0))])
def test_a_placeholder_collective_has_the_routing_of_its_call_site(said: str, spread: tuple[float, ...]) -> None:
    """The call site has the library's payload and, if known, the number of destinations."""
    build = LogBuilder()
    site = build.text(f"site at=train.py:7 exchange=dispatch;hybridep;4096;14336;8;64;16;6;{said};bfloat16")
    group = build.text("group name=3 size=8 ranks=0:8:1 desc=experts")
    op = f"op name=record_param_comms in= out= args={group}"
    build.record(Kind.COLLECTIVE, work=f"{collective('all_reduce', 4)} site={site}", op=op)
    routed = Routed("hybridep", 4096, 14336, 8, 64, 16, spread, window=6)
    found, groups = signatures(build)
    assert found == [Collective("dispatch", 4096 * 14336, "bfloat16", 0, routed=routed)]
    assert groups == (Group("experts", tuple(range(8)), 8),)
