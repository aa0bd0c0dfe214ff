"""Steps from captured batches: what is fitted comes back, what lies between is interpolated, errors are stated."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.drafting import drafting_of
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.batches import StepBatch, arguments, batches, config_for_vllm, gpu_arguments
from presim.serving.steps.captured_step_times import (
    CapturedSteps,
    Sample,
    attention_of,
    check,
    host_of,
    tables,
    with_captured,
)
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.times import PricedEngine, build

SHARED = ServingPlan(dp=4, ep=True, max_num_seqs=64, max_num_batched_tokens=2048, cuda_graphs=False)
PLAN = ServingPlan(max_num_seqs=64, max_num_batched_tokens=2048, cuda_graphs=False, async_scheduling=False)
LINEAR_NS, HEAD_NS, PREPARE_NS, FINISH_NS = 1_000.0, 2_000.0, 50_000.0, 3_000.0  # for each token or sequence


@functools.cache
def engine() -> PricedEngine:
    return build(find("llama3-8b"), PLAN, choose_cluster(gpu="h100-sxm", world_size=1))


def sample(decodes: tuple[int, ...], prefills: tuple[tuple[int, int], ...] = (), **said: Any) -> Sample:
    """A batch of which all but attention grows evenly."""
    one = Sample(decodes, prefills, False, *[0.0] * 7)
    attention = attention_of(one, engine().times)
    head = 1e5 + HEAD_NS * one.rows
    device = 5e6 + LINEAR_NS * one.tokens + head + attention
    return dataclasses.replace(
        one,
        prepare_ns=6e5 + PREPARE_NS * one.rows,
        waits_ns=device,
        device_ns=device,
        head_ns=head,
        attention_ns=attention,
        finish_ns=1e5 + FINISH_NS * one.rows,
        **said,
    )


FITTED = [
    *(sample((256,) * size) for size in (1, 4, 16, 64)),
    *(sample((), ((size, size),)) for size in (128, 512, 2048)),
]


def test_batches_between_those_captured_are_interpolated() -> None:
    """Where time grows evenly with tokens and sequences, held-out and mixed batches come out exactly."""
    times = tables(FITTED, PLAN, engine().times, Overheads(), ())
    for one in (sample((256,) * 9), sample((), ((1000, 1000),)), sample((700,) * 20, ((300, 300),))):
        assert check(one, times, engine().times).error == pytest.approx(0, abs=1e-9)


def test_attention_of_a_mixed_batch_is_priced_by_its_true_lengths() -> None:
    """The capture's attention, every sequence as long as the longest, is no part of the error."""
    times = tables(FITTED, PLAN, engine().times, Overheads(), ())
    one = sample((256,) * 8, ((512, 512),))
    too_long = dataclasses.replace(
        one, attention_ns=one.attention_ns + 9e6, device_ns=one.device_ns + 9e6, attention_exact=False
    )
    assert check(too_long, times, engine().times).error == pytest.approx(0, abs=1e-9)


def test_tokens_are_padded_to_the_sizes_of_cuda_graphs() -> None:
    times = tables(FITTED, PLAN, engine().times, Overheads(), (1, 2, 4, 8, 16, 32))
    assert times.token_ns[9] == times.token_ns[16] < times.token_ns[17] == times.token_ns[32]
    assert times.token_ns[33] < times.token_ns[34]


def test_a_step_takes_at_least_its_launches_with_attention_beside_them() -> None:
    """Launches are the median of a kind's batches: those of one batch have noise in them."""
    slow = [dataclasses.replace(one, launch_ns=2e7) for one in FITTED]
    slow[0] = dataclasses.replace(slow[0], launch_ns=9e7)
    times = tables(slow, PLAN, engine().times, Overheads(), ())
    for one in slow[:4]:
        assert times.step_ns([], list(one.decodes)) == pytest.approx(2e7)
    long = sample((1 << 17,) * 16)
    assert long.device_ns > 2e7
    assert times.step_ns([], list(long.decodes)) == pytest.approx(long.device_ns)


def test_prompts_between_graphs_wait_for_more_launches_than_decodes_in_one() -> None:
    """A prompt of few tokens takes the launches of prompts, not those of as many decodes."""
    graph_ns, pieces_ns, single_ns = 4e5, 2e7, 4e7
    kinds = [*[graph_ns] * 4, pieces_ns, pieces_ns, single_ns]
    slow = [dataclasses.replace(one, launch_ns=ns) for one, ns in zip(FITTED, kinds)]
    times = tables(slow, PLAN, engine().times, Overheads(), tuple(range(1, 513)))
    assert times.step_ns([(40, 40)], []) == pieces_ns
    assert times.step_ns([], [256] * 40) < pieces_ns / 2
    assert times.step_ns([(700, 700)], []) == single_ns


def test_host_time_is_a_line_over_sequences() -> None:
    found = host_of(FITTED, Overheads(input_us=7.0), "here")
    assert (found.host_us, found.host_sequence_us) == (pytest.approx(600), pytest.approx(50))
    assert (found.back_us, found.back_sequence_us) == (pytest.approx(100), pytest.approx(3))
    assert (found.input_us, found.host_origin, found.calibrated) == (7.0, "here", False)


def test_the_result_says_where_steps_are_from_and_how_far_off() -> None:
    held = dataclasses.replace(sample((256,) * 9), held_out=True)
    wrong = dataclasses.replace(held, waits_ns=held.waits_ns / 1.25)
    made = with_captured(engine(), CapturedSteps((*FITTED, held, held, wrong), {"measured": 1.0}, 0.03, "from there"))
    assert made.steps == {
        "source": "from there",
        "fitted_batches": 7,
        "held_out_batches": 3,
        "held_out_median_error": pytest.approx(0, abs=1e-9),
        "held_out_largest_error": pytest.approx(0.25),
    }
    assert (made.origins, made.uncertainty) == ({"measured": 1.0}, pytest.approx(0.03))
    assert made.times.host_ns == pytest.approx(6e5)


def test_captured_steps_need_decodes_and_prompts() -> None:
    with pytest.raises(InputError, match=r"^captured steps have decodes and prompts; capture them with --steps cap"):
        tables(FITTED[:4], PLAN, engine().times, Overheads(), ())


def test_batches_reach_both_limits_and_hold_some_out() -> None:
    found = batches(ServingPlan(max_num_seqs=200, max_num_batched_tokens=5000), 8192, 400_000)
    fitted, held = ([one for one in found if one.held_out is out] for out in (False, True))
    assert [len(one.decodes) for one in fitted if one.decodes] == [1, 2, 4, 8, 16, 32, 64, 128, 200]
    assert [sum(one.prefills) for one in fitted if one.prefills] == [32, 128, 256, 512, 1024, 2048, 4096, 5000]
    assert {bool(one.decodes) + 2 * bool(one.prefills) for one in held} == {1, 2, 3}
    assert not {(one.decodes, one.prefills) for one in fitted} & {(one.decodes, one.prefills) for one in held}
    assert StepBatch((256,) * 16, (448,)).text == "16 decodes of 256 + 1 prompt of 448"


def test_batches_that_the_cache_has_no_room_for_are_left_out() -> None:
    found = batches(ServingPlan(), 8192, 10_000)
    assert max(len(one.decodes) for one in found) == 32
    assert all(sum(one.decodes) + sum(one.prefills) <= 9_000 for one in found)


def test_prompts_longer_than_a_request_are_several() -> None:
    longest = max(batches(ServingPlan(), 2048, 400_000), key=lambda one: sum(one.prefills))
    assert longest.prefills == (1638,) * 5


@pytest.mark.parametrize("method", ["ngram", "eagle"])
def test_a_drafter_s_passes_are_added_to_the_target_s_captured_steps(method: str) -> None:
    """Its errors are those of the target alone; three drafted tokens are verified as three more of the step."""
    target = dataclasses.replace(engine(), plan=PLAN)
    drafts = build(
        target.model,
        dataclasses.replace(PLAN, drafting=drafting_of(method, 3, 0.7, None)),
        target.cluster,
    )
    captured = CapturedSteps(tuple(FITTED), {}, 0.1, "captured here")
    alone, both = with_captured(target, captured), with_captured(drafts, captured)
    assert alone.steps is not None
    assert both.steps is not None
    assert both.steps["source"] == "captured here, the drafter's passes composed"
    assert both.steps["held_out_median_error"] == alone.steps["held_out_median_error"]
    extra = both.times.token_ns - alone.times.token_ns
    assert (extra.max() == 0) == (method == "ngram")
    assert (extra >= 0).all()


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (ServingPlan(dp=2), "no steps are captured with --dp without --ep; leave --steps at composed"),
        (ServingPlan(dp=2, pp=2, ep=True), "no steps are captured with --dp and --pp; leave --steps at composed"),
        (ServingPlan(kernels="sglang"), "no steps are captured with --kernels sglang; leave --steps at composed"),
    ],
)
def test_plans_of_which_no_steps_are_captured_are_refused(plan: ServingPlan, why: str) -> None:
    with pytest.raises(InputError) as error:
        arguments(plan, 4096, find("qwen3-30b-a3b"))
    assert str(error.value) == why


def test_a_rank_that_shares_experts_is_captured_with_its_own_of_them() -> None:
    """Each token still chooses as many, which is the load of a rank's experts when all ranks' tokens come."""
    model = find("qwen3-30b-a3b")
    found = config_for_vllm({"model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8}, model, SHARED)
    assert (found["num_experts"], found["num_experts_per_tok"]) == (32, 8)
    grouped = {"model_type": "deepseek_v3", "n_routed_experts": 256}
    found = config_for_vllm(grouped, find("deepseek-v3"), dataclasses.replace(SHARED, dp=32))
    assert (found["n_routed_experts"], found["n_group"], found["topk_group"]) == (8, 8, 8)
    assert "n_group" not in config_for_vllm({"architectures": ["Mine"], "n_routed_experts": 128}, model, SHARED)
    with pytest.raises(InputError, match=r"of 128 experts over --dp 32: a rank has 4, and a token chooses 8; leave"):
        config_for_vllm({"num_experts": 128}, model, dataclasses.replace(SHARED, dp=32))


def test_experts_that_ranks_share_are_composed() -> None:
    """Their time is taken out of the captured steps, and both sides of a check leave it out."""
    shared = build(find("qwen3-30b-a3b"), SHARED, choose_cluster(gpu="h100-sxm"))
    samples = [dataclasses.replace(one, experts_ns=0.5 * (one.device_ns - one.head_ns)) for one in FITTED]
    found = with_captured(shared, CapturedSteps(tuple(samples), {}, 0.1, "captured here"))
    whole = with_captured(shared, CapturedSteps(tuple(FITTED), {}, 0.1, "captured here"))
    assert found.steps is not None
    assert str(found.steps["source"]).endswith(
        "the experts that 4 data-parallel ranks share and their exchange composed"
    )
    assert (found.times.shared_ns == shared.times.shared_ns).all()
    assert found.times.token_ns[8] < whole.times.token_ns[8]
    assert found.steps["held_out_median_error"] == 0.0


def test_on_blackwell_no_kernel_is_compiled_as_it_runs() -> None:
    """What is asked of vLLM beside that is the same on every GPU, so that a kept set serves all."""
    assert gpu_arguments(choose_cluster(gpu="h100-sxm").gpu) == {}
    assert gpu_arguments(choose_cluster(gpu="b200").gpu)["attention_config"] == {"flash_attn_version": 2}


def test_more_sequences_than_are_captured_are_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"^steps are captured with at most 1,024 sequences, and --max-num-seqs is 4,096; lower it, or leave "
        r"--steps at composed$",
    ):
        batches(ServingPlan(max_num_seqs=4096), 4096, 10**9)


def test_the_architecture_that_vllm_looks_for_follows_from_the_model_type() -> None:
    model = find("llama3-8b")
    assert config_for_vllm({"model_type": "qwen3"}, model, ServingPlan())["architectures"] == ["Qwen3ForCausalLM"]
    own = {"architectures": ["Mine"], "model_type": "other"}
    assert config_for_vllm(own, model, ServingPlan()) == own
    with pytest.raises(InputError, match="no architecture is known for its model type 'other'"):
        config_for_vllm({"model_type": "other"}, model, ServingPlan())


def test_the_checkpoint_is_quantised_as_the_plan_says() -> None:
    """Weights in FP8 by blocks are a checkpoint's; other FP8 weights are made of 16-bit ones when they are loaded."""
    published = {"architectures": ["Mine"], "quantization_config": {"quant_method": "fp8"}}
    model = find("deepseek-v3")
    assert "quantization_config" not in config_for_vllm(published, model, ServingPlan())
    assert config_for_vllm(published, model, ServingPlan(weights="fp8-block"))["quantization_config"][
        "weight_block_size"
    ] == [
        128,
        128,
    ]
    assert arguments(ServingPlan(weights="fp8", cache="fp8"), 4096, model)["quantization"] == "fp8"
    assert arguments(ServingPlan(weights="fp8-block"), 4096, model)["quantization"] is None
    assert arguments(ServingPlan(cache="fp8"), 4096, model)["kv_cache_dtype"] == "fp8"


def test_a_stage_is_captured_as_a_model_of_its_layers() -> None:
    """The longest stage, none of whose layers are the dense ones at the model's start."""
    kinds = [f"kind {layer}" for layer in range(61)]
    published = {"architectures": ["Mine"], "num_hidden_layers": 61, "first_k_dense_replace": 3, "layer_types": kinds}
    found = config_for_vllm(published, find("deepseek-v3"), ServingPlan(pp=4))
    assert found == {
        "architectures": ["Mine"],
        "num_hidden_layers": 16,
        "first_k_dense_replace": 0,
        "layer_types": kinds[-16:],
    }


def test_a_stage_s_captured_steps_have_the_message_to_the_next_one() -> None:
    """Its cache is as composed: a stage alone has more room."""
    plan = dataclasses.replace(PLAN, pp=2)
    one = build(find("llama3-8b"), plan, choose_cluster(gpu="h100-sxm", world_size=plan.gpus))
    alone = dataclasses.replace(one, plan=dataclasses.replace(plan, pp=1))
    captured = CapturedSteps(tuple(FITTED), {}, 0.1, "captured here", blocks=77)
    steps, without = with_captured(one, captured), with_captured(alone, captured)
    extra = steps.times.token_ns - without.times.token_ns
    assert (extra > 0).all()
    assert extra[-1] > extra[1]
    assert (steps.memory.blocks, without.memory.blocks) == (one.memory.blocks, 77)
    assert steps.steps is not None
    assert steps.steps["source"] == "captured here, one of 2 stages, messages between them composed"


def test_dense_data_parallel_ranks_are_captured_as_one_of_them() -> None:
    assert arguments(ServingPlan(dp=4, tp=2), 4096, find("llama3-8b"))["tensor_parallel_size"] == 2
