"""Steps by operator add up to what the simulation takes, and say what limits them."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner

from presim.cli.serve import command
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.step_detail import decode_step, prefill_step
from presim.serving.steps.times import PricedEngine, build


def engine(name: str, **fields: object) -> PricedEngine:
    plan = ServingPlan(max_num_seqs=64, max_num_batched_tokens=2048, max_model_len=4096, **fields)  # type: ignore[arg-type]
    return build(find(name), plan, choose_cluster(gpu="h100-sxm", world_size=plan.gpus))


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_operators_add_up_to_the_simulated_step(name: str) -> None:
    made = engine(name)
    for step in (decode_step(made, 16, 1024), prefill_step(made, 1024)):
        assert sum(row.share for row in step.operators) == pytest.approx(1)
        assert sum(row.us for row in step.operators) == pytest.approx(step.device_us)
        assert max(step.device_us, step.launch_us) == pytest.approx(step.simulated_us, rel=0.1)
        assert all(0 <= row.light <= 1 for row in step.operators)
        assert {row.limit for row in step.operators} <= {"compute", "memory", "launch", "link"}
        assert [row.us for row in step.operators] == sorted((row.us for row in step.operators), reverse=True)


def test_decodes_read_weights_and_prompts_compute() -> None:
    made = engine("llama3-8b", tp=2)
    assert decode_step(made, 8, 512).operators[0].limit == "memory"
    assert prefill_step(made, 2000).operators[0].limit == "compute"
    (reduced,) = (row for row in decode_step(made, 8, 512).operators if row.name.startswith("all_reduce over tp, 6"))
    assert (reduced.limit, reduced.calls) == ("link", 65)


def test_windows_have_an_attention_of_their_own() -> None:
    names = [row.name for row in decode_step(engine("gpt-oss-20b"), 8, 1024).operators]
    assert sum(name.startswith("attention") for name in names) == 2
    assert any(name.endswith("window 128") for name in names)


def test_the_host_limits_eager_steps_of_a_small_model() -> None:
    assert decode_step(engine("qwen3-0.6b", cuda_graphs=False), 1, 100).limit == "the host's launches"
    assert decode_step(engine("qwen3-0.6b"), 1, 100).limit == "the device"


def test_more_than_the_engine_takes_is_cut() -> None:
    made = engine("llama3-8b")
    assert decode_step(made, 1000, 100).sequences == 64
    assert prefill_step(made, 1 << 20).tokens == 2048
    fewer = dataclasses.replace(made, limits=dataclasses.replace(made.limits, max_num_batched_tokens=32))
    assert decode_step(fewer, 1000, 100).sequences == 32


def test_the_report_and_the_json_have_the_same_operators() -> None:
    words = ["llama3-8b", "--gpu", "h100-sxm", "--requests", "8", "--max-model-len", "8192", "--detail"]
    content = json.loads(CliRunner().invoke(command, [*words, "--json", "-"]).output)["step_detail"]
    assert content["prefill"]["tokens"] == 1024
    printed = CliRunner().invoke(command, words).output
    assert f"{content['decode']['device_us'] / 1e3:,.2f} ms on the device" in printed
    assert "speed of light" in printed
