"""A step on a described network does not depend on which ranks are simulated. A new case is a line of `CASES`."""

from __future__ import annotations

import pytest

from presim.evaluation.what_if import Changes
from support.long_cases import marked
from support.network_jobs import Call, NetworkJob

_AGREE = 0.01
_PAIRS, _DP4, _DP8 = ((16, 2),), ((8, 4),), ((8, 8),)
_NODE, _TWO_NODES, _EVERYONE = ((1, 8),), ((1, 16),), ((1, 64),)
_STAGES = ((32, 2),)
_MESSAGES = (Call("send", _STAGES), Call("recv", _STAGES))
_NARROW = {"leaf_nodes": 1, "oversubscription": 4.0}
_TREE = {"leaf_nodes": 2}
_RAIL = {"fabric": "rail", "leaf_nodes": 2, "oversubscription": 2.0}
_DRAGONFLY = {"fabric": "dragonfly", "leaf_nodes": 1, "pod_leaves": 4}
_TORUS = {"fabric": "torus", "dims": (4, 2)}
_ALL_REDUCE, _BESIDE = Call("all_reduce", _DP8), Call("all_reduce", _DP4, stream=11)

CASES = {
    "two leaves, DP": NetworkJob({"leaf_nodes": 2, "oversubscription": 4.0}, (Call("all_reduce", _PAIRS),), nodes=4),
    "two nodes, TP x DP": NetworkJob(_NARROW, (Call("all_reduce", _NODE), Call("all_gather", ((8, 2),))), nodes=2),
    "two nodes, one group": NetworkJob(_NARROW, (Call("all_reduce", _TWO_NODES),), nodes=2),
    "three leaves, DP": NetworkJob(_NARROW, (Call("all_reduce", ((8, 3),)),), nodes=3),
    "four leaves, TP x DP": NetworkJob(
        _NARROW, (Call("all_reduce", _NODE, 16), Call("all_gather", _DP4, stream=11)), nodes=4
    ),
    "tree 1:1, EP": NetworkJob(_TREE, (Call("all_to_all", _EVERYONE),)),
    "tree 2:1, EP": NetworkJob({**_TREE, "oversubscription": 2.0}, (Call("all_to_all", _EVERYONE),)),
    "tree 4:1, EP x DP": NetworkJob(
        {**_TREE, "oversubscription": 4.0}, (Call("all_to_all", _TWO_NODES), Call("all_reduce", ((16, 4),), stream=11))
    ),
    "ECMP, DP": NetworkJob({**_TREE, "routing": "ecmp"}, (_ALL_REDUCE,)),
    "ECMP, EP": NetworkJob({**_TREE, "routing": "ecmp"}, (Call("all_to_all", _DP8),)),
    "rail, DP": NetworkJob(_RAIL, (_ALL_REDUCE,)),
    "rail, EP": NetworkJob(_RAIL, (Call("all_to_all", _EVERYONE),)),
    "torus, DP": NetworkJob(_TORUS, (_ALL_REDUCE,)),
    "torus, DP of every second node": NetworkJob(_TORUS, (Call("all_reduce", ((16, 4),)),)),
    "ring, EP": NetworkJob({"fabric": "ring"}, (Call("all_to_all", _DP8),)),
    "mesh, DP": NetworkJob({"fabric": "mesh"}, (Call("all_reduce", _DP4),), nodes=4),
    "dragonfly, TP x DP": NetworkJob(_DRAGONFLY, (Call("all_reduce", _NODE, 16), Call("all_gather", _DP8, stream=11))),
    "dragonfly, EP": NetworkJob(_DRAGONFLY, (Call("all_to_all", _EVERYONE),)),
    "four leaves, PP x DP": NetworkJob(_NARROW, (*_MESSAGES, _BESIDE), stages=2),
    "tree 2:1, PP x TP": NetworkJob(
        {**_TREE, "oversubscription": 2.0}, (Call("all_reduce", _NODE, 16), *_MESSAGES), stages=2
    ),
    "NVL72 racks, DP": NetworkJob(_NARROW, (Call("all_reduce", ((72, 2),)),), nodes=36, gpus_per_node=4, gpu="gb200"),
    "ports that two GPUs share, DP": NetworkJob({**_TREE, "oversubscription": 2.0, "nics": 4}, (_ALL_REDUCE,)),
    "PCIe nodes with two ports, DP": NetworkJob(_NARROW, (Call("all_reduce", _DP4),), nodes=4, gpu="l40s"),
    "mesh nodes, TP x DP": NetworkJob(
        _NARROW, (Call("all_reduce", _NODE, 16), Call("all_gather", _DP4, stream=11)), nodes=4, gpu="mi300x"
    ),
    "two leaves, EP x DP": NetworkJob(
        {"leaf_nodes": 2, "oversubscription": 4.0},
        (
            Call("all_to_all", _TWO_NODES, 128),
            Call("all_to_all", _TWO_NODES),
            Call("all_reduce", ((16, 2),), stream=11),
        ),
        nodes=4,
    ),
    "three leaves, EP x DP": NetworkJob(
        {"leaf_nodes": 2, "oversubscription": 2.0},
        (Call("all_to_all", _TWO_NODES), Call("all_reduce", ((16, 3),), stream=11)),
        nodes=6,
    ),
    "rail 4:1, EP x DP": NetworkJob(
        {**_RAIL, "oversubscription": 4.0},
        (Call("all_to_all", _TWO_NODES), Call("all_to_all", _TWO_NODES), Call("all_reduce", ((16, 4),), stream=11)),
    ),
    "dragonfly, PP x DP": NetworkJob(_DRAGONFLY, (*_MESSAGES, Call("all_reduce", _DP4, stream=11)), stages=2),
    "torus, TP x DP": NetworkJob(_TORUS, (Call("all_reduce", _NODE, 16), Call("all_gather", _DP8, stream=11))),
    "torus, PP x DP": NetworkJob(_TORUS, (*_MESSAGES, _BESIDE), stages=2),
    "pods 4:1, EP x DP": NetworkJob(
        {"leaf_nodes": 1, "levels": 3, "pod_leaves": 2, "core_oversubscription": 4.0},
        (Call("all_to_all", _TWO_NODES), Call("all_reduce", ((16, 4),), stream=11)),
    ),
    "NVL72 racks, EP x DP": NetworkJob(
        _NARROW,
        (Call("all_to_all", ((1, 72),)), Call("all_reduce", ((72, 2),), stream=11)),
        nodes=36,
        gpus_per_node=4,
        gpu="gb200",
    ),
    "two exchanges beside each other": NetworkJob(
        {"leaf_nodes": 1, "oversubscription": 8.0}, (Call("all_to_all", _STAGES), Call("all_to_all", _PAIRS, stream=11))
    ),
}


LONG = (  # each has a shorter sibling on the same network
    *("two nodes, one group", "four leaves, TP x DP", "tree 1:1, EP", "tree 4:1, EP x DP", "ECMP, DP", "rail, EP"),
    *("torus, DP of every second node", "ring, EP", "dragonfly, TP x DP", "tree 2:1, PP x TP", "torus, TP x DP"),
    *("PCIe nodes with two ports, DP", "mesh nodes, TP x DP", "two leaves, EP x DP", "three leaves, EP x DP"),
    *("dragonfly, PP x DP", "torus, PP x DP", "pods 4:1, EP x DP", "NVL72 racks, EP x DP"),
)


@pytest.mark.parametrize("name", marked(CASES, long=LONG))
def test_every_way_of_asking_gives_the_same_step(name: str) -> None:
    """By one rank of each stage, with a rank or node that is hardly slower, and with every rank by itself."""
    job = CASES[name]
    step_ns = job.step_ns()
    assert job.step_of_every_rank_ns() == pytest.approx(step_ns, rel=_AGREE)
    last_rank = job.nodes * job.gpus_per_node - 1
    for straggler in ("rank0", f"rank{last_rank}", "node1"):
        changes = Changes(stragglers={straggler: 0.999})
        assert job.step_ns(changes) == pytest.approx(step_ns, rel=_AGREE), straggler
        assert job.step_of_every_rank_ns(changes) == pytest.approx(step_ns, rel=_AGREE), straggler
