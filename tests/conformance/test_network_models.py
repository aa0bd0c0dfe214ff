"""What every network model promises; run over all of them, within nodes and between them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import strategies as made
from conformance.registry import CLUSTERS, COVERS_EVERYTHING, NETWORK_MODELS
from presim import hardware
from presim.cost import estimator_conformance
from presim.cost.collectives.network_model import Transfer
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.collective import COLLECTIVE_KINDS, Collective
from presim.trace.schema import Group
from support.long_cases import examples, marked

LONG_CLUSTERS = ("a100-80gb-sxm", "l40s", "v100-32gb-sxm")  # nodes like those of others: with NVLink, on PCIe
pytestmark = [
    pytest.mark.parametrize("gpu", marked(CLUSTERS, LONG_CLUSTERS)),
    pytest.mark.parametrize("name", NETWORK_MODELS),
]
QUICK = settings(max_examples=examples(8), deadline=None)
COUNTS = st.sampled_from((1, 2, 3, 4, 8, 16, 31, 64, 128))
STRIDES = st.sampled_from((1, 2, 4, 8))


def cluster_of(gpu: str) -> Cluster:
    """512 GPUs or more, in the node type usual for them, on leaf switches with narrow uplinks."""
    node = hardware.node(hardware.gpu(gpu).default_node)
    found = hardware.choose_cluster(gpu=gpu, nodes=-(-1024 // node.gpus))
    return msgspec.structs.replace(found, network={"leaf_nodes": 2, "oversubscription": 4.0})


def group_of(count: int, stride: int, known: bool = True) -> Group:
    return Group("group", tuple(range(0, count * stride, stride)) if known else (), count)


@QUICK
@given(made.collectives(), COUNTS, STRIDES, st.booleans())
def test_prices_are_well_formed_and_the_same_again(
    name: str, gpu: str, collective: Collective, count: int, stride: int, known: bool
) -> None:
    model, cluster, group = NETWORK_MODELS[name](), cluster_of(gpu), group_of(count, stride, known)
    (price,) = model.price([Transfer(collective, group)], cluster)
    assert [price] == NETWORK_MODELS[name]().price([Transfer(collective, group)], cluster)
    if price is None:
        assert name not in COVERS_EVERYTHING
        return
    estimator_conformance.check_price(price, str(collective))


@QUICK
@given(st.lists(st.tuples(made.collectives(), COUNTS, STRIDES), min_size=1, max_size=4))
def test_company_decides_how_long_a_transfer_takes_and_never_helps(
    name: str, gpu: str, asked: list[tuple[Collective, int, int]]
) -> None:
    transfers = [Transfer(collective, group_of(count, stride)) for collective, count, stride in asked]
    estimator_conformance.check_transfers(NETWORK_MODELS[name](), transfers, cluster_of(gpu))


@QUICK
@given(made.collectives(), COUNTS, STRIDES)
def test_nothing_beats_the_wires(name: str, gpu: str, collective: Collective, count: int, stride: int) -> None:
    cluster, group = cluster_of(gpu), group_of(count, stride)
    (price,) = NETWORK_MODELS[name]().price([Transfer(collective, group)], cluster)
    if price is not None:
        estimator_conformance.check_collective_bound(price, collective, group, cluster)


@QUICK
@given(made.collectives(), COUNTS, STRIDES, st.integers(1, 1 << 32))
def test_more_bytes_take_no_less(name: str, gpu: str, small: Collective, count: int, stride: int, more: int) -> None:
    model, cluster, group = NETWORK_MODELS[name](), cluster_of(gpu), group_of(count, stride)
    large = msgspec.structs.replace(small, bytes=small.bytes + more)
    low, high = (model.price([Transfer(collective, group)], cluster)[0] for collective in (small, large))
    if low is not None and high is not None:
        assert low.duration_ns <= high.duration_ns


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
def test_every_kind_has_a_price(name: str, gpu: str, kind: str) -> None:
    collective = Collective(kind=kind, bytes=1 << 20, dtype="bfloat16", group=0)
    (price,) = NETWORK_MODELS[name]().price([Transfer(collective, group_of(4, 1))], cluster_of(gpu))
    assert price is not None


def test_unknown_ranks_are_doubted_more(name: str, gpu: str) -> None:
    collective = Collective(kind="all_gather", bytes=1 << 24, dtype="bfloat16", group=0)
    model, cluster = NETWORK_MODELS[name](), cluster_of(gpu)
    known, guessed = (
        model.price([Transfer(collective, group_of(16, 1, knows))], cluster)[0] for knows in (True, False)
    )
    assert known is not None
    if guessed is None:
        assert name not in COVERS_EVERYTHING
        return
    assert guessed.uncertainty > known.uncertainty
    assert guessed.duration_ns == known.duration_ns


def test_an_unknown_kind_is_refused_in_a_sentence(name: str, gpu: str) -> None:
    collective = Collective(kind="gossip", bytes=1, dtype="bfloat16", group=0)
    with pytest.raises(InputError, match=r"^'gossip' is not a known kind of collective .*; correct the trace$"):
        NETWORK_MODELS[name]().price([Transfer(collective, group_of(8, 1))], cluster_of(gpu))
