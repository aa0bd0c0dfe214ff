"""Expert parallelism: what it conserves, and what it exchanges."""

from __future__ import annotations

import functools
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from presim import hardware
from presim.composition.compose import Composed, compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.take import take
from presim.composition.passes.expert_parallel import apply
from presim.composition.passes.expert_parameters import expert_count
from presim.composition.passes.expert_routing import load_of
from presim.composition.passes.expert_routing import parse as routing_of
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.trace.schema import Trace
from presim.trace.signatures import Collective, GroupedGemm
from presim.trace.trace_invariants import check
from support.models import llama

pytestmark = pytest.mark.torch_cuda
WORLD, LAYERS, EXPERTS, CHOSEN, HIDDEN, TOKENS = 16, 4, 8, 2, 256, 512
CLUSTER = hardware.choose_cluster(gpu="h100-sxm", world_size=WORLD)
MIXTURE = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": HIDDEN,
    "intermediate_size": 512,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "use_cache": False,
}


@functools.cache
def mixture() -> OperatorGraph:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(MIXTURE))
        return take(str(config))


# with biases of experts, which are looked up by the expert of each token
GPT_OSS = MIXTURE | {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "head_dim": 32,
    "sliding_window": 128,
    "layer_types": ["full_attention"] * LAYERS,
}


@functools.cache
def with_biases() -> OperatorGraph:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(GPT_OSS))
        return take(str(config))


@functools.cache
def made(expert: int, *, biases: bool = False) -> Composed:
    job = compose(with_biases() if biases else mixture(), Plan(sequence=TOKENS, expert=expert), CLUSTER)
    check(job.traces[0])
    return job


def work(trace: Trace) -> list[object]:
    """The signatures of the last step."""
    chosen = trace.columns["signature"][trace.steps()[-1]]
    return [trace.signatures[index] for index in chosen[chosen >= 0].tolist()]


def test_one_rank_is_the_identity() -> None:
    assert apply(mixture(), 1) is mixture()
    assert expert_count(mixture()) == EXPERTS
    assert expert_count(llama()) == 1


@pytest.mark.parametrize("expert", [2, 8])
def test_products_of_experts_are_conserved(expert: int) -> None:
    """As many tokens come as go, so a rank's products are as large, over fewer experts."""
    flops = [
        sum(one.flops for one in work(made(each).traces[0]) if isinstance(one, GroupedGemm)) for each in (1, expert)
    ]
    assert flops[0] == flops[1] > 0
    assert made(expert).traces[0].manifest.model["parameters"] == made(1).traces[0].manifest.model["parameters"]


@pytest.mark.parametrize("expert", [2, 8])
def test_biases_are_split_and_looked_up_among_the_rank_s_own(expert: int) -> None:
    graph = apply(with_biases(), expert)
    biases = {one.name: one.shape for one in graph.parameters if one.name.endswith("proj_bias")}
    own = EXPERTS // expert
    assert biases == {".mlp.experts.gate_up_proj_bias": (own, 1024), ".mlp.experts.down_proj_bias": (own, HIDDEN)}
    forward = next(one for one in graph.segments if one.name and not one.backward)
    made_by = {output.value: node.operator for node in forward.nodes for output in node.outputs}
    looked = [node for node in forward.nodes if node.operator == "aten::index" and
              forward.values[node.inputs[0].value].name in biases]  # fmt: skip
    assert {made_by[node.inputs[1].value] for node in looked} == {"aten::repeat_interleave"}
    parameters = [each.traces[0].manifest.model for each in (made(1, biases=True), made(expert, biases=True))]
    assert parameters[0]["parameters"] == parameters[1]["parameters"]


@pytest.mark.parametrize("expert", [2, 8])
def test_gradients_of_biases_have_the_rank_s_own_experts(expert: int) -> None:
    graph = apply(with_biases(), expert)
    backward = next(one for one in graph.segments if one.name and one.backward)
    for name in (".mlp.experts.gate_up_proj_bias", ".mlp.experts.down_proj_bias"):
        value = backward.gradients[name]
        node = next(one for one in backward.nodes if any(output.value == value for output in one.outputs))
        assert node.operator == "aten::index_put"
        zeros, ids, _ = node.inputs
        assert graph.shapes[zeros.shape][0] == EXPERTS // expert
        assert backward.values[ids.value].segment == backward.twin


@pytest.mark.parametrize("expert", [2, 8])
def test_tokens_travel_twice_in_each_direction(expert: int) -> None:
    """Dispatch and combine, forward and backward; numbers of tokens besides."""
    found = Counter(
        one.bytes for one in work(made(expert).traces[0]) if isinstance(one, Collective) and one.kind == "all_to_all"
    )
    rows = TOKENS * CHOSEN
    assert found[rows * HIDDEN * 2] == 4 * LAYERS
    assert sum(found.values()) == 5 * LAYERS


def test_experts_are_sharded_by_the_ranks_that_have_the_same_ones() -> None:
    trace = made(8).traces[0]
    groups = {group.name: group.ranks for group in trace.manifest.groups}
    assert groups["experts"] == tuple(range(8))
    assert groups["copies"] == (0, 8)
    gathered = Counter[str]()
    for one in work(trace):
        if isinstance(one, Collective) and one.kind == "all_gather":
            gathered[trace.manifest.groups[one.group].name] += one.bytes
    of_experts = 3 * HIDDEN * 512 * EXPERTS // 8 * 2 * LAYERS  # one expert's three matrices in bf16
    assert gathered["copies"] == 2 * of_experts  # forward and backward


def test_megatron_s_optimizer_has_buffers_of_experts_of_their_own() -> None:
    """Their gradients are reduced over the ranks with the same experts, once a step; all others over all ranks."""
    plan = Plan(sequence=TOKENS, expert=8, data_style="zero1", global_batch=2 * WORLD)
    trace = compose(mixture(), plan, CLUSTER).traces[0]
    check(trace)
    moved = Counter[tuple[str, str]]()
    for one in work(trace):
        if isinstance(one, Collective) and one.kind in ("all_gather", "reduce_scatter"):
            moved[one.kind, trace.manifest.groups[one.group].name] += one.bytes
    of_experts = 3 * HIDDEN * 512 * EXPERTS // 8 * LAYERS  # elements of one expert's three matrices
    whole = mixture().parameter_count() - of_experts * 8
    assert moved["all_gather", "copies"] == 2 * of_experts
    assert moved["reduce_scatter", "copies"] == 4 * of_experts  # in fp32
    assert moved["all_gather", "data"] == 2 * whole
    assert moved["reduce_scatter", "data"] == 4 * whole
    assert trace.manifest.model["parameters_local"] == whole + of_experts


def test_ddp_reduces_experts_among_the_ranks_that_have_the_same_ones() -> None:
    """They are modules that the outer DDP ignores, wrapped by one of their own."""
    plan = Plan(sequence=TOKENS, expert=8, data_style="ddp")
    trace = compose(mixture(), plan, CLUSTER).traces[0]
    check(trace)
    reduced = Counter[str]()
    for one in work(trace):
        if isinstance(one, Collective) and one.kind == "all_reduce" and one.bytes > 4:
            reduced[trace.manifest.groups[one.group].name] += one.bytes
    of_experts = 3 * HIDDEN * 512 * EXPERTS // 8 * LAYERS
    assert reduced["copies"] == 2 * of_experts
    assert reduced["data"] == 2 * (mixture().parameter_count() - of_experts * 8)
    assert trace.manifest.model["parameters_local"] == (reduced["copies"] + reduced["data"]) // 2


EXCHANGES = ("all-to-all", "all-gather", "deepep")


def with_plan(*, biases: bool = False, **plan: object) -> Trace:
    fields = {"sequence": TOKENS, "expert": 8, **plan}
    graph = with_biases() if biases else mixture()
    trace = compose(graph, Plan(**fields), CLUSTER).traces[0]  # type: ignore[arg-type]
    check(trace)
    return trace


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("style", ["fsdp2", "zero1", "ddp"])
def test_every_exchange_conserves_products_and_parameters(exchange: str, biases: bool, style: str) -> None:
    trace = with_plan(biases=biases, expert_exchange=exchange, data_style=style)
    usual = made(8, biases=biases).traces[0]
    flops = [sum(one.flops for one in work(each) if isinstance(one, GroupedGemm)) for each in (usual, trace)]
    assert flops[0] == flops[1] > 0
    assert trace.manifest.model["parameters"] == usual.manifest.model["parameters"]


@pytest.mark.parametrize(
    ("exchange", "kinds"),
    [
        ("all-gather", {"all_gather": 4 * LAYERS, "reduce_scatter": 3 * LAYERS}),
        ("deepep", {"dispatch": 2 * LAYERS, "combine": 2 * LAYERS}),
    ],
)
def test_tokens_travel_whole(exchange: str, kinds: dict[str, int]) -> None:
    trace = with_plan(expert_exchange=exchange)
    names = [group.name for group in trace.manifest.groups]
    mine = [one for one in work(trace) if isinstance(one, Collective) and names[one.group] == "experts"]
    found = Counter(one.kind for one in mine)
    found["all_reduce"] = 0  # of norms
    assert +found == kinds
    tokens = TOKENS * HIDDEN * 2 * (8 if exchange == "all-gather" else 1)
    assert max(one.bytes for one in mine) == tokens
    for one in mine:
        if one.routed:
            assert (one.routed.tokens, one.routed.experts, one.routed.chosen) == (TOKENS, EXPERTS, CHOSEN)


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("biases", [False, True])
def test_the_fullest_rank_computes_its_share(exchange: str, biases: bool, tmp_path: Path) -> None:
    """With given loads rank 0 has the expert of a quarter of all choices, of which it has an eighth if even."""
    loads = tmp_path / "loads"
    loads.write_text("2 1 1 1 1 1 1 1")
    routing = routing_of(f"file:{loads}")
    load = load_of(routing, EXPERTS, CHOSEN, 8, TOKENS, LAYERS)
    assert 1.5 < load.received < 2
    trace = with_plan(expert_exchange=exchange, routing=f"file:{loads}", biases=biases)
    flops = [sum(one.flops for one in work(each) if isinstance(one, GroupedGemm))
             for each in (made(8, biases=biases).traces[0], trace)]  # fmt: skip
    assert flops[1] / flops[0] == pytest.approx(load.received, rel=2e-3)
    moved = [one for one in work(trace) if isinstance(one, Collective) and one.splits is not None]
    assert len(moved) == (4 * LAYERS if exchange == "all-to-all" else 0)
    for one in moved:
        assert one.splits is not None
        assert sum(one.splits.sent) == one.bytes
        there, here = sorted((sum(one.splits.sent), sum(one.splits.received)))
        assert here / there == pytest.approx(load.received / load.sent, rel=5e-3)


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize(("capacity", "padded"), [(1.5, True), (0.5, False)])
def test_capacity_changes_the_products_rows(exchange: str, capacity: float, padded: bool) -> None:
    if padded and exchange == "deepep":
        pytest.skip("DeepEP sends no padding")
    trace = with_plan(expert_exchange=exchange, expert_capacity=capacity, pad_experts=padded)
    flops = [
        sum(one.flops for one in work(each) if isinstance(one, GroupedGemm)) for each in (made(8).traces[0], trace)
    ]
    assert flops[1] == pytest.approx(capacity * flops[0])
    if exchange == "all-to-all":
        sent = Counter(one.bytes for one in work(trace) if isinstance(one, Collective) and one.kind == "all_to_all")
        assert sent[int(capacity * TOKENS * CHOSEN * HIDDEN * 2)] == 4 * LAYERS


def test_uneven_groups_are_in_the_products_signatures() -> None:
    """Two experts a rank: one of them has more rows, forward, and in the sum over tokens of the gradient."""
    trace = with_plan(expert=4, routing="zipf:1.0")
    sizes = [one.sizes for one in work(trace) if isinstance(one, GroupedGemm)]
    assert sizes
    assert all(len(one) == 2 and one[0] > one[1] for one in sizes)


def test_few_experts_on_many_ranks_are_named_as_padded() -> None:
    assert any("pads 8 experts of a layer to its 16 ranks" in note for note in made(1).notes)
    assert not any("pads" in note for note in made(8).notes)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (
            {"expert": 3},
            r"expert = 3 does not divide the 16 ranks that share parameters \(16 % 3 = 1\); degrees that do: 1, 2, 4",
        ),
        ({"expert": 16}, r"expert = 16 does not divide 8 experts of .* \(8 % 16 = 8\)"),
        ({"expert": 1, "routing": "zipf:1"}, "expert = 1, but expert_exchange, routing, expert_capacity and pad_exp"),
        ({"expert": 2, "routing": "zipf"}, "routing = zipf: expected balanced, uniform, uniform:SEED, zipf:S"),
        ({"expert": 2, "expert_capacity": -1.0}, "expert_capacity = -1 is negative"),
        ({"expert": 2, "pad_experts": True}, "pad_experts needs a capacity to pad to"),
        (
            {"expert": 2, "pad_experts": True, "expert_capacity": 1.25, "expert_exchange": "deepep"},
            "DeepEP sends tokens only",
        ),
        ({"expert": 2, "tensor": 2}, "use sequence_parallel"),
    ],
)
def test_what_cannot_be_divided_is_refused(plan: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        compose(mixture(), Plan(sequence=TOKENS, **plan), CLUSTER)  # type: ignore[arg-type]


def test_a_dense_model_has_no_experts() -> None:
    with pytest.raises(InputError, match="has no experts in grouped products"):
        compose(llama(), Plan(sequence=TOKENS, expert=2), CLUSTER)
