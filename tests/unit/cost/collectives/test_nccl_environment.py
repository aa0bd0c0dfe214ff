"""NCCL's environment variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from presim import hardware
from presim.cost.collectives.group_placement import layout_of, links_of
from presim.cost.collectives.hierarchical import Hierarchical, call_of, chosen_run
from presim.cost.collectives.nccl_environment import Tuning, ignored_variables, tuning_of
from presim.cost.collectives.nccl_variables import HONOURED, UNMODELLED, WITHOUT_EFFECT, effect_of, unknown_variables
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import Collective

MIB = 1 << 20


def cluster(nodes: int = 1) -> Cluster:
    return hardware.choose_cluster(gpu="h100-sxm", nodes=nodes)


def chosen(kind: str, size: int, ranks: range, *, nodes: int = 1, **environment: str) -> tuple[str, int]:
    """Algorithm and protocol."""
    collective = Collective(kind=kind, bytes=size, dtype="bfloat16", group=0)
    tuning, where = tuning_of(environment), cluster(nodes)
    layout = layout_of(collective, Group("g", tuple(ranks), len(ranks)), where)
    call = call_of(collective, layout, links_of(where, layout, tuning), tuning, where)
    run = chosen_run(call, tuning)
    return run.algorithm, run.protocol


def duration(size: int, **environment: str) -> int:
    collective = Collective(kind="all_reduce", bytes=size, dtype="bfloat16", group=0)
    return Hierarchical(environment).alone(collective, Group("g", tuple(range(8)), 8), cluster()).duration_ns


def test_size_and_nodes_choose_algorithm_and_protocol() -> None:
    assert chosen("all_reduce", 1024, range(8)) == ("ring", 0)
    assert chosen("all_reduce", MIB, range(8)) == ("ring", 0)
    assert chosen("all_reduce", 8 * MIB, range(4)) == ("ring", 1)
    assert chosen("all_reduce", 1024 * MIB, range(8)) == ("nvls", 2)
    assert chosen("all_gather", 1024 * MIB, range(8)) == ("ring", 2)
    assert chosen("all_reduce", 1024, range(512), nodes=64) == ("tree", 0)
    assert chosen("all_gather", MIB, range(0, 512, 8), nodes=64) == ("pat", 2)


def test_forbidden_algorithms_and_protocols_are_not_used() -> None:
    assert chosen("all_reduce", 1024 * MIB, range(8), NCCL_NVLS_ENABLE="0")[0] == "ring"
    assert chosen("all_reduce", 1024 * MIB, range(8), NCCL_ALGO="^nvls,nvlstree")[0] == "ring"
    assert chosen("all_reduce", 1024, range(8), NCCL_PROTO="Simple") == ("nvls", 2)
    assert chosen("all_reduce", 1024, range(2), NCCL_PROTO="Simple") == ("ring", 2)
    assert chosen("all_reduce", 1024, range(512), nodes=64, NCCL_ALGO="Ring")[0] == "ring"
    assert chosen("all_gather", MIB, range(0, 512, 8), nodes=64, NCCL_PAT_ENABLE="0")[0] == "ring"


def test_algorithms_may_be_chosen_per_function() -> None:
    said = {"NCCL_ALGO": "allreduce:ring;allgather:pat"}
    assert chosen("all_reduce", 1024 * MIB, range(8), **said)[0] == "ring"
    assert chosen("all_gather", MIB, range(0, 512, 8), nodes=64, **said)[0] == "pat"


def test_the_ring_runs_if_nothing_is_allowed() -> None:
    assert chosen("all_gather", MIB, range(8), NCCL_ALGO="tree")[0] == "ring"


def test_few_channels_cost_bandwidth() -> None:
    few, many = duration(1024 * MIB, NCCL_MAX_NCHANNELS="2", NCCL_ALGO="ring"), duration(1024 * MIB, NCCL_ALGO="ring")
    assert few > 4 * many
    assert duration(1024, NCCL_MAX_NCHANNELS="2") == duration(1024)


def test_without_peer_to_peer_data_goes_through_host_memory() -> None:
    assert duration(1024 * MIB, NCCL_P2P_DISABLE="1") > 8 * duration(1024 * MIB)


def test_variables_of_the_script_take_precedence_over_the_cluster() -> None:
    assert tuning_of({"NCCL_MAX_NCHANNELS": "4"}, {"NCCL_MAX_NCHANNELS": "8"}).most_channels == 8
    assert tuning_of({}, {}) == Tuning()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NCCL_PROTO", "^LL,LL128,Simple", "NCCL_PROTO=^LL,LL128,Simple leaves none of"),
        ("NCCL_PROTO", "allreduce:", "NCCL_PROTO=allreduce: leaves none of ll, ll128, simple for all_reduce"),
        ("NCCL_ALGO", "rign", "NCCL_ALGO=rign: rign is not one of ring, tree, collnetdirect, collnetchain, nvls"),
        ("NCCL_MAX_NCHANNELS", "many", "NCCL_MAX_NCHANNELS=many is not a whole number; correct the variable"),
        ("NCCL_MAX_CTAS", "0", "NCCL's variables require at least 1 and at most 0 channels; correct NCCL_*_NCHANNELS"),
    ],
)
def test_values_that_nccl_rejects_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        tuning_of({name: value})


def test_of_two_names_for_channels_the_strictest_holds_and_the_old_one_yields() -> None:
    """As NCCL documents them: CTAS and NCHANNELS together, NRINGS only without NCHANNELS."""
    assert tuning_of({"NCCL_MAX_CTAS": "8", "NCCL_MAX_NCHANNELS": "4"}).most_channels == 4
    assert tuning_of({"NCCL_MIN_CTAS": "8", "NCCL_MIN_NCHANNELS": "4"}).fewest_channels == 8
    assert tuning_of({"NCCL_MAX_NRINGS": "2", "NCCL_MAX_NCHANNELS": "4"}).most_channels == 4
    assert tuning_of({"NCCL_MIN_NRINGS": "6"}).fewest_channels == 6


def test_unmodelled_variables_that_change_speed_are_listed() -> None:
    said = {"NCCL_CROSS_NIC": "1", "NCCL_DEBUG": "INFO", "NCCL_ALGO": "ring", "NCCL_TOPO_FILE": "topo.xml"}
    assert ignored_variables(said) == ["NCCL_CROSS_NIC", "NCCL_TOPO_FILE"]
    assert ignored_variables({"NCCL_PXN_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}) == ["NCCL_PXN_DISABLE"]


def test_the_table_has_every_variable_that_nccl_documents() -> None:
    listed = (Path(__file__).parent / "nccl_documented.txt").read_text(encoding="utf-8").splitlines()
    documented = [line for line in listed if not line.startswith("#")]
    assert len(documented) > 100
    assert [name for name in documented if not effect_of(name)] == []


def test_each_variable_is_in_one_part_of_the_table() -> None:
    parts = (set(HONOURED), UNMODELLED, WITHOUT_EFFECT)
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert all(effect_of(name) for part in parts for name in part)
    assert effect_of("NCCL_RIGN") == ""


def bus_GBps(nodes: int, **environment: str) -> float:
    """Of an all-reduce of 1 GiB among all GPUs of so many nodes."""
    collective, ranks = Collective("all_reduce", 1024 * MIB, "bfloat16", 0), 8 * nodes
    price = Hierarchical(environment).alone(collective, Group("g", tuple(range(ranks)), ranks), cluster(nodes))
    return 2 * (ranks - 1) / ranks * collective.bytes / price.duration_ns


def test_one_channel_has_the_bandwidth_of_one_channel() -> None:
    """Of NVLS and NVLSTree too: about 30 GB/s of 450."""
    assert bus_GBps(1, NCCL_MAX_NCHANNELS="1") == pytest.approx(30, rel=0.1)
    assert bus_GBps(2, NCCL_MAX_NCHANNELS="1") == pytest.approx(30, rel=0.1)
    assert bus_GBps(2, NCCL_MAX_NRINGS="1") == bus_GBps(2, NCCL_MAX_NCHANNELS="1")


@pytest.mark.parametrize("forbidden", [{"NCCL_IB_DISABLE": "1"}, {"NCCL_NET": "Socket"}], ids=str)
def test_sockets_carry_a_fraction_of_a_fast_port(forbidden: dict[str, str]) -> None:
    slow, faster = bus_GBps(2, **forbidden), bus_GBps(2, **forbidden, NCCL_NSOCKS_PERTHREAD="4")
    assert slow < 0.1 * bus_GBps(2)
    assert faster == pytest.approx(4 * slow, rel=0.05)
    assert bus_GBps(1, **forbidden) == bus_GBps(1)


def test_small_buffers_and_few_threads_cost_bandwidth() -> None:
    usual = bus_GBps(1, NCCL_ALGO="ring")
    assert 0.5 * usual < bus_GBps(1, NCCL_ALGO="ring", NCCL_BUFFSIZE=str(MIB)) < 0.99 * usual
    assert bus_GBps(1, NCCL_ALGO="ring", NCCL_BUFFSIZE=str(8 * MIB)) == usual
    assert bus_GBps(1, NCCL_ALGO="ring", NCCL_NTHREADS="64") < 0.5 * usual


def test_the_local_level_forbids_peer_access() -> None:
    assert bus_GBps(1, NCCL_P2P_LEVEL="LOC") == bus_GBps(1, NCCL_P2P_DISABLE="1")
    assert bus_GBps(1, NCCL_P2P_LEVEL="SYS") == bus_GBps(1)


def test_a_variable_that_nobody_documents_is_named() -> None:
    """Misspelt ones, or ones that only NCCL's source has; what PyTorch reads is none of them."""
    names = ["NCCL_CHECK_DISABLE", "NCCL_DEBUG", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_P2P_READ_ENABLE", "CUDA_HOME"]
    assert unknown_variables(names) == ["NCCL_CHECK_DISABLE", "NCCL_P2P_READ_ENABLE"]
