"""Searching deployments: the front, what starts the best one, and how near the closed form is to the simulation."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from presim.cli.deploy import command
from presim.cost.measured import table
from presim.cost.measured.measured_rows import PROFILE, Measurement
from presim.errors import InputError
from presim.hardware import catalogue
from presim.serving.answer.metrics import Slo
from presim.serving.defaults import with_defaults
from presim.serving.deployments.deployment_point import DeploymentPoint
from presim.serving.deployments.deployment_ranking import deployment_of
from presim.serving.deployments.deployment_search import Space, engines, search
from presim.serving.deployments.prediction import predict
from presim.serving.engine_versions import NEWEST, EngineRelease
from presim.serving.model_lookup import find
from presim.serving.serving_plan import Offload
from presim.serving.steps.times import PricedEngine, build
from presim.serving.workloads.generate import Lengths, WorkloadRecipe, generate
from presim.trace.signatures import Gemm

SMALL = Space(("h100-sxm",), tps=(1, 2), pps=(1, 2), weights=("bf16",), budgets=(8192,), most_gpus=4, dps=(1,))


def test_no_point_of_the_front_is_worse_in_both() -> None:
    found = search(find("llama3-8b"), SMALL, 512, 128, Slo(ttft_ms=300, tpot_ms=20))
    front = found.pareto
    assert len(front) > 3
    for point in front:
        assert point.tpot_ms <= 20
        assert point.ttft_ms <= 300
        assert not [other for other in front if other.per_gpu > point.per_gpu and other.per_user > point.per_user]


def confirm(point: DeploymentPoint, recipe: WorkloadRecipe) -> dict[str, Any]:
    """Figures of the same deployment with equally many requests in flight, all sent at once as the estimate has it."""
    flying = point.batch * point.replicas
    load = generate(dataclasses.replace(recipe, requests=min(6 * flying, 3000), concurrency=flying))
    return predict(deployment_of(point), load).figures


def test_the_closed_form_is_near_the_simulation() -> None:
    """TPOT and throughput of engines that prefill and decode. Batches of a pipeline are not as even as it assumes."""
    found = search(find("llama3-8b"), SMALL, 512, 128, Slo())
    chosen = [point for point in found.points if not point.prefill_replicas and point.batch in (1, 16, 64)]
    recipe = WorkloadRecipe(1, Lengths(512, lowest=0.95), Lengths(128, lowest=0.95))
    for point in chosen:
        real = confirm(point, recipe)
        assert point.tpot_ms == pytest.approx(real["mean_tpot_ms"], rel=0.25)
        near = 0.15 if point.engine.plan.pp == 1 else 0.35
        assert point.tokens_per_s == pytest.approx(real["output_throughput"], rel=near)


def test_the_closed_form_is_rougher_with_experts() -> None:
    """The guide says by how much, and the search says which plans it leaves out."""
    found = search(find("qwen3-30b-a3b"), dataclasses.replace(SMALL, disaggregated=False), 512, 128, Slo())
    recipe = WorkloadRecipe(1, Lengths(512, lowest=0.95), Lengths(128, lowest=0.95))
    off = [
        point.tpot_ms / confirm(point, recipe)["mean_tpot_ms"] for point in found.points if point.batch in (1, 16, 64)
    ]
    assert len(off) == 18
    assert min(off) > 0.75
    assert max(off) < 1.75


def test_a_search_without_any_plan_says_why() -> None:
    with pytest.raises(InputError, match=r"no plan can serve 1024 \+ 256 tokens .*does not fit"):
        search(find("deepseek-v3"), SMALL, 1024, 256, Slo())


def test_engines_are_compared() -> None:
    """SGLang's decodes wait for prompts; the closed form is near its simulation if lengths keep requests apart."""
    both = dataclasses.replace(SMALL, engines=(EngineRelease("vllm"), EngineRelease("sglang")), disaggregated=False)
    found = search(find("llama3-8b"), both, 512, 128, Slo())
    assert {point.engine.plan.decides for point in found.points} == {"vllm", "sglang"}
    assert found.refused["SGLang's pipeline stages are not modelled"] == 2
    recipe = WorkloadRecipe(1, Lengths(512, lowest=0.8), Lengths(160, lowest=0.6))
    for point in found.points:
        if point.engine.plan.decides == "sglang" and point.batch in (1, 16, 64):
            real = confirm(point, recipe)
            assert point.tpot_ms == pytest.approx(real["mean_tpot_ms"], rel=0.3)
            assert point.tokens_per_s == pytest.approx(real["output_throughput"], rel=0.15)


def test_the_user_s_own_tables_decide(tmp_path: Path) -> None:
    """Where the gate and up projections of one token take a millisecond in each of 32 layers, decodes are slower."""
    slow = Gemm(1, 2 * 14336, 4096, 1, "bfloat16", layout="NT")
    made = Measurement(gpu="h100-sxm", signature=slow, duration_ns=1e6, source=PROFILE)
    table.write([made], tmp_path / f"mine{table.SUFFIX}", {})
    space = dataclasses.replace(SMALL, tps=(1,), pps=(1,), disaggregated=False)
    known, own = (
        search(find("llama3-8b"), dataclasses.replace(space, prices=prices), 512, 128, Slo()).points[0]
        for prices in ((), (tmp_path,))
    )
    assert (known.batch, own.batch) == (1, 1)
    assert own.tpot_ms - known.tpot_ms == pytest.approx(32, rel=0.1)
    with pytest.raises(InputError, match=r"there is no folder .*none with prices"):
        search(find("llama3-8b"), dataclasses.replace(space, prices=(tmp_path / "none",)), 512, 128, Slo())


def test_tables_that_do_not_apply_are_named(tmp_path: Path) -> None:
    """Those of another GPU in the result; one that cannot be read before any plan is judged."""
    made = Measurement(gpu="a100-80gb-sxm", signature=Gemm(1, 8, 8, 1, "bfloat16"), duration_ns=1e6, source=PROFILE)
    table.write([made], tmp_path / f"mine{table.SUFFIX}", {})
    space = dataclasses.replace(SMALL, tps=(1,), pps=(1,), disaggregated=False, prices=(tmp_path,))
    (note,) = search(find("llama3-8b"), space, 512, 128, Slo()).not_modelled
    assert note == "No row of the measured prices is of h100-sxm; they are of a100-80gb-sxm."
    (tmp_path / f"broken{table.SUFFIX}").write_text("nonsense")
    with pytest.raises(InputError, match=r"^\S+broken\S+ cannot be read as Parquet"):
        search(find("llama3-8b"), space, 512, 128, Slo())


def test_the_verb_writes_what_starts_the_best(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    words = "llama3-8b --gpu h100-sxm --input 512 --output 64 --slo tpot:20@p90 --max-gpus 2 --weights bf16"
    done = CliRunner().invoke(command, [*shlex.split(words), "--json", "-", "--write", str(folder)])
    said = json.loads(done.stdout)
    best = said["best"]
    assert (best["basis"], best["verdict"], best["meets_slo"]) == ("simulated", "meets", True)
    assert best["figures"]["p90_tpot_ms"] <= 20
    assert {entry["basis"] for entry in said["pareto"]} == {"estimated"}
    assert {entry["verdict"] for entry in said["simulated"]} <= {"meets", "fewer"}
    assert {"compose.json", "kubernetes.json", "engine.sh", "bench.sh"} < {path.name for path in folder.iterdir()}
    script = (folder / "engine.sh").read_text()
    assert 'MODEL=${MODEL:-meta-llama/Llama-3.1-8B-Instruct}\nexec vllm serve "$MODEL" ' in script
    assert "--max-num-seqs 1024" in script  # the limit that was simulated


def test_a_folder_that_cannot_be_written_is_refused_before_the_search() -> None:
    """As root, too: /proc says that it may be written to."""
    done = CliRunner().invoke(
        command, shlex.split("no-such-model --gpu h100-sxm --write /proc/x"), standalone_mode=False
    )
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith("cannot write to /proc/x: /proc ")


def test_an_slo_that_nothing_keeps_ends_with_what_would_help() -> None:
    words = "llama3-8b --gpu h100-sxm --input 512 --output 64 --slo ttft:500 --slo tpot:3@mean --max-gpus 2"
    words += " --no-disaggregation --weights bf16"
    done = CliRunner().invoke(command, [*shlex.split(words), "--json", "-"], standalone_mode=False)
    said = json.loads(done.stdout)
    assert done.return_value == 4
    assert said["best"] is None
    nearest, (looser, larger, other_gpu) = said["nearest"], said["would_help"]
    assert nearest["verdict"] == "misses"
    assert nearest["figures"]["mean_tpot_ms"] > 3
    assert looser.startswith("A looser SLO: --slo ttft:500@p99 --slo tpot:")
    assert f"is met by {nearest['deployment']}" in looser
    assert larger.startswith("More GPUs: --max-gpus 4 allows 1 x h100-sxm TP4 ")
    assert other_gpu.startswith("Another GPU: --gpu ")
    option = looser.split("--slo tpot:")[1].split()[0]
    words = words.replace("tpot:3@mean", f"tpot:{option}")
    assert CliRunner().invoke(command, shlex.split(words), standalone_mode=False).return_value == 0


def test_lengths_have_a_spread() -> None:
    words = "llama3-8b --gpu h100-sxm --input 512~0.5 --output 64 --slo tpot:20 --max-gpus 1 --weights fp8"
    done = CliRunner().invoke(command, [*shlex.split(words), "--json", "-"], standalone_mode=False)
    fixed = CliRunner().invoke(command, [*shlex.split(words.replace("~0.5", "")), "--json", "-"], standalone_mode=False)
    spread_best, fixed_best = (json.loads(run.stdout)["best"] for run in (done, fixed))
    assert spread_best["figures"]["p99_ttft_ms"] > 1.05 * fixed_best["figures"]["p99_ttft_ms"]


@pytest.mark.parametrize(
    ("words", "kind"),
    [  # layouts that aiconfigurator 0.12 can answer with; which of them it names depends on the question
        ("qwen3-32b h200 8", "4P1D x h200 prefill TP1, decode TP4 fp8"),
        pytest.param("deepseek-v3 h200 16", "1P1D x h200 TP1 DP8 EP fp8-block", marks=pytest.mark.long),
        ("deepseek-v3 h200 16", "1 x h200 TP1 DP16 EP fp8-block"),
        pytest.param("qwen3-235b-a22b h200 8", "1 x h200 TP4 DP2 EP fp8", marks=pytest.mark.long),
    ],
)
def test_layouts_of_other_tools_are_in_the_space(words: str, kind: str) -> None:
    word, gpu, gpus = words.split()
    space = Space((gpu,), budgets=(8192,), most_gpus=int(gpus))
    found = search(find(word), space, 4000, 500, Slo())
    assert any(point.name.startswith(f"{kind},") for point in found.points)


def test_an_slo_limits_the_time_of_a_request() -> None:
    found = search(find("llama3-8b"), SMALL, 512, 128, Slo(e2el_ms=1500))
    assert found.pareto
    for point in found.pareto:
        assert point.e2el_ms == pytest.approx(point.ttft_ms + 127 * point.tpot_ms)
        assert point.e2el_ms <= 1500


def test_cached_prefixes_leave_less_to_prefill() -> None:
    """And the closed form is as near to the simulation as without them."""
    plain, cached = (
        search(find("llama3-8b"), dataclasses.replace(SMALL, disaggregated=False, cached=tokens), 2512, 128, Slo())
        for tokens in (0, 2000)
    )
    recipe = WorkloadRecipe(1, Lengths(512, lowest=0.95), Lengths(128, lowest=0.95), shared_prefix=2000)
    before_ms = {point.text: point.ttft_ms for point in plain.points}
    assert all(point.ttft_ms < before_ms[point.text] for point in cached.points if point.text in before_ms)
    for point in cached.points:
        if point.engine.plan.pp == 1 and point.batch in (1, 16):
            assert point.tpot_ms == pytest.approx(confirm(point, recipe)["mean_tpot_ms"], rel=0.25)


def test_drafts_and_kv_types_are_of_the_plan() -> None:
    words = "llama3-8b --gpu h100-sxm --input 300 --output 40 --slo tpot:20 --max-gpus 1 --weights bf16"
    words += " --kv fp8 --speculative ngram --draft-tokens 2 --acceptance 0.5"
    done = CliRunner().invoke(command, [*shlex.split(words), "--json", "-"])
    assert "bf16 KV fp8 ngram 2" in json.loads(done.stdout)["best"]["deployment"]


def test_limits_share_the_prices_of_a_plan() -> None:
    """Each engine has the step times that it has alone."""
    space = dataclasses.replace(SMALL, tps=(1,), pps=(1,), budgets=(2048, 8192), weights=("bf16", "fp8"))
    together = list(engines(find("llama3.2-1b"), space, 1024))
    assert len(together) == 4
    for engine in together:
        assert isinstance(engine, PricedEngine)
        alone = build(engine.model, engine.plan, engine.cluster)
        assert np.array_equal(engine.times.token_ns, alone.times.token_ns)
        assert np.array_equal(engine.times.decode_ns, alone.times.decode_ns)
        assert (engine.origins, engine.uncertainty) == (alone.origins, alone.uncertainty)


def test_what_launch_files_leave_to_the_engine_has_its_defaults() -> None:
    """SGLang's share of memory, and the steps of a version before vLLM's asynchronous ones."""
    releases = EngineRelease("sglang"), EngineRelease("vllm", "0.11"), EngineRelease("vllm")
    space = dataclasses.replace(SMALL, tps=(1,), pps=(1,), engines=releases)
    plans = [engine.plan for engine in engines(find("llama3-8b"), space, 700) if isinstance(engine, PricedEngine)]
    by_engine = {EngineRelease(plan.decides, plan.engine_version): plan for plan in plans}
    assert by_engine.keys() == {*releases}
    fields = {"kernels": "sglang", "max_num_seqs": 1024, "max_num_batched_tokens": 8192}
    gpu = catalogue.gpu("h100-sxm")
    default = with_defaults(fields, find("llama3-8b"), gpu)
    assert by_engine[releases[0]].gpu_memory_utilization == default.gpu_memory_utilization < 0.92
    assert [by_engine[release].async_scheduling for release in releases[1:]] == [False, True]


def test_versions_are_told_apart() -> None:
    words = "llama3-8b --gpu h100-sxm --input 300 --output 40 --slo tpot:20 --max-gpus 1 --weights bf16"
    words += " --engine vllm --engine vllm@0.11"
    done = CliRunner().invoke(command, [*shlex.split(words), "--json", "-"], standalone_mode=False)
    simulated = json.loads(done.stdout)["simulated"]
    versions = {entry["engine_version"] for entry in simulated}
    assert versions == {NEWEST["vllm"], "0.11"}
    assert any("x h100-sxm vLLM 0.11, TP1" in entry["deployment"] for entry in simulated)


def test_an_engine_whose_scheduler_is_not_simulated_is_named() -> None:
    words = "qwen3-0.6b --gpu h100-sxm --max-gpus 1 --slo ttft:500 --input 200 --output 20 --engine trtllm --json -"
    done = CliRunner().invoke(command, shlex.split(words), standalone_mode=False)
    result = json.loads(done.stdout)
    assert {entry["engine"] for entry in result["simulated"]} == {"trtllm"}
    assert "TensorRT-LLM's own scheduler is not simulated: vLLM's stands in for it." in result["not_modelled"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--engine tgi", "--engine is vllm, sglang or trtllm, or a version as vllm@0.19, not 'tgi'; correct it"),
        ("--engine trtllm@1.0", "kernels and defaults are those of TensorRT-LLM 1.0: leave out @1.0"),
        ("--engine trtllm --kv-host 8", "--kv-host is searched for vLLM alone: leave out --engine trtllm"),
        ("--engine trtllm --write out", "--write has files of vLLM and SGLang: leave out --engine trtllm, or --write"),
        ("--engine vllm@new", "--engine-version is a version such as 0.6.3, not 'new'; correct it"),
        (
            "--engine vllm --engine sglang --engine-version 0.5",
            "--engine-version is of one engine without a version; say --engine vllm@VERSION --engine sglang@VERSION "
            "instead",
        ),
    ],
)
def test_engines_that_are_none_are_refused(words: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        CliRunner().invoke(
            command, shlex.split(f"llama3-8b --gpu h100-sxm {words}"), standalone_mode=False, catch_exceptions=False
        )


def test_host_memory_for_cached_blocks_is_tried_beside_none() -> None:
    space = dataclasses.replace(SMALL, tps=(1,), pps=(1,), offloads=(None, Offload(100.0)), disaggregated=False)
    engines_by_gib = {
        engine.plan.offload.host_gib if engine.plan.offload else 0.0: engine
        for engine in engines(find("llama3-8b"), space, 1000)
        if isinstance(engine, PricedEngine)
    }
    assert sorted(engines_by_gib) == [0.0, 100.0]
    without, with_host = engines_by_gib[0.0].limits, engines_by_gib[100.0].limits
    assert without.tiers.host_blocks == 0
    assert with_host.tiers.host_blocks * 16 * 131_072 == pytest.approx(100 * 2**30, rel=0.001)
    beyond = dataclasses.replace(space, offloads=(Offload(1e5),))
    (reason,) = engines(find("llama3-8b"), beyond, 1000)
    assert isinstance(reason, str)
    assert reason.startswith("100,000 GiB of KV blocks in a node's memory exceed the 2,")
    words = ["llama3-8b", "--gpu", "h100-sxm", "--kv-host", "100", "--engine", "sglang"]
    assert "--kv-host is searched for vLLM alone" in str(CliRunner().invoke(command, words).exception)
