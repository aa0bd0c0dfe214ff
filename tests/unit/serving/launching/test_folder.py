"""Files that start a deployment: a kind of plan is one line. Engines' own parsers are in tests/integration."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from click.testing import CliRunner

from presim.cli.calibrate import command as calibrate
from presim.cli.deploy import command as deploy
from presim.errors import InputError
from presim.serving.launching.checkpoint_source import CheckpointSource, checkpoint_source
from presim.serving.launching.folder import DeploymentFolder, files, write
from presim.serving.launching.launch_set import RouterProgram
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from support.deployments import engine_of, folder, point

KINDS: dict[str, tuple[dict[str, Any], RouterProgram | None]] = {
    "one engine": ({"tp": 2}, None),
    "replicas": ({"replicas": 3, "weights": "fp8", "cache": "fp8"}, None),
    "apart": ({"replicas": 2, "prefill": 1, "tp": 2}, None),
    "replicas of SGLang": ({"replicas": 2, "kernels": "sglang"}, None),
    "SGLang's apart": ({"replicas": 1, "prefill": 2, "kernels": "sglang"}, None),
    "pipeline of two machines": ({"tp": 8, "pp": 2}, None),
    "apart on two machines": ({"replicas": 1, "prefill": 1, "tp": 8}, None),
    "experts of data-parallel ranks": ({"word": "qwen3-30b-a3b", "dp": 8, "ep": True, "replicas": 2}, None),
    "Dynamo's": ({"replicas": 2, "prefill": 2}, "dynamo"),
    "llm-d's": ({"replicas": 2, "prefill": 1, "tp": 2}, "llm-d"),
    "llm-d's together": ({"replicas": 2}, "llm-d"),
}


def written(kind: str) -> DeploymentFolder:
    fields, router = KINDS[kind]
    return folder(point(**fields), fields.get("word", "llama3-8b"), router)


def items(content: DeploymentFolder) -> list[dict[str, Any]]:
    return list(json.loads(files(content)["kubernetes.json"])["items"])


@pytest.mark.parametrize("kind", [kind for kind, (_, router) in KINDS.items() if router != "dynamo"])
def test_each_kind_starts(kind: str, tmp_path: Path) -> None:
    """Manifests keep Kubernetes' schema, scripts the shell's, and no GPU or port has two owners."""
    content = written(kind)
    for item in items(content):
        kubernetes_validate.validate(item, "1.31", strict=True)
    texts = files(content)
    write(content, tmp_path)
    for name in [name for name in texts if name.endswith(".sh")]:
        subprocess.run(["sh", "-n", str(tmp_path / name)], check=True)
    if content.launch_set.fits_a_node and content.launch_set.router != "llm-d":
        services = json.loads(texts["compose.json"])["services"]
        engines = [service for name, service in services.items() if name != "router"]
        devices = [service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for service in engines]
        gpus = [gpu for ids in devices for gpu in ids]
        assert len(set(gpus)) == len(gpus) == content.launch_set.gpus
        ports = [service["environment"]["PORT"] for service in engines]
        assert len(set(ports)) == len(ports)
    else:
        assert "compose.json" not in texts


@pytest.mark.parametrize("kind", ["replicas", "apart", "SGLang's apart"])
def test_the_router_knows_each_engine(kind: str) -> None:
    """On one machine by its ports, in Kubernetes by the pods of the StatefulSets."""
    content = written(kind)
    started = files(content)["start.sh"].decode()
    last = started.splitlines()[-2]
    for instance in content.launch_set.instances():
        assert f"http://127.0.0.1:{instance.port}" in shlex.split(last)
    sets = {item["metadata"]["name"]: item["spec"]["replicas"] for item in items(content) if "replicas" in item["spec"]}
    (router,) = [
        item for item in items(content) if item["metadata"]["name"] == "router" and item["kind"] == "Deployment"
    ]
    script = router["spec"]["template"]["spec"]["containers"][0]["command"][2]
    for name, count in sets.items():
        for pod in range(count) if name != "router" else ():
            assert f"http://{name}-{pod}.{name}:8100" in script


def test_engines_that_span_machines_have_ranks() -> None:
    script = files(written("pipeline of two machines"))["engine.sh"].decode()
    assert '--nnodes 2 --node-rank "$NODE_RANK" --master-addr "$MASTER" $HEADLESS' in script
    (stateful_set,) = [item for item in items(written("pipeline of two machines")) if item["kind"] == "StatefulSet"]
    assert stateful_set["spec"]["replicas"] == 2
    limits = stateful_set["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": 8}


def test_dynamo_has_its_own_manifest() -> None:
    texts = files(written("Dynamo's"))
    services = json.loads(texts["kubernetes.json"])["spec"]["services"]
    assert {name: service["replicas"] for name, service in services.items()} == {
        "Frontend": 1,
        "PrefillWorker": 2,
        "DecodeWorker": 2,
    }
    assert "start.sh" not in texts
    with pytest.raises(InputError, match=r"engines of one machine, and TP8 PP2 bf16 has 16 GPUs on machines of 8; use"):
        files(folder(point(tp=8, pp=2), router="dynamo"))


@pytest.mark.parametrize(
    ("word", "plan", "source"),
    [
        ("llama3-8b", ServingPlan(), CheckpointSource("meta-llama/Llama-3.1-8B-Instruct", is_path=False)),
        ("llama-3-8b", ServingPlan(weights="fp8"), CheckpointSource("meta-llama/Llama-3.1-8B-Instruct", False, "fp8")),
        ("meta-llama/Llama-3.1-8B", ServingPlan(), CheckpointSource("meta-llama/Llama-3.1-8B", is_path=False)),
        ("qwen3-32b", ServingPlan(weights="fp8-block"), CheckpointSource("Qwen/Qwen3-32B-FP8", is_path=False)),
        ("Qwen/Qwen3-32B-FP8", ServingPlan(weights="fp8-block"), CheckpointSource("Qwen/Qwen3-32B-FP8", is_path=False)),
        ("deepseek-v3", ServingPlan(weights="fp8-block"), CheckpointSource("deepseek-ai/DeepSeek-V3", is_path=False)),
        (
            "deepseek-v3",
            ServingPlan(weights="fp8-block", as_published=True),
            CheckpointSource("deepseek-ai/DeepSeek-V3", False),
        ),
    ],
)
def test_a_checkpoint_has_the_types_of_the_plan(word: str, plan: ServingPlan, source: CheckpointSource) -> None:
    assert checkpoint_source(word, find(word), plan) == source


def test_a_type_that_nobody_published_is_asked_for(tmp_path: Path) -> None:
    source = checkpoint_source("llama3-8b", find("llama3-8b"), ServingPlan(weights="int4"))
    assert source.problem == (
        "no checkpoint of llama3-8b with int4 weights is known here: set MODEL to one before you start"
    )
    assert b"MODEL=${MODEL:?no checkpoint" in files(folder(point(weights="int4")))["engine.sh"]


def test_the_user_s_folder_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 1000, "max_position_embeddings": 8192,
    }))  # fmt: skip
    content = folder(point(str(tmp_path)), str(tmp_path))
    (engine,) = json.loads(files(content)["compose.json"])["services"].values()
    assert engine["volumes"][0] == f"{tmp_path}:{tmp_path}:ro"
    assert f"MODEL=$${{MODEL:-{tmp_path}}}" in engine["entrypoint"][2]


def bench_result(content: DeploymentFolder, slower: float = 1.0) -> dict[str, Any]:
    """What vLLM's bench would save if the deployment did as predicted."""
    from presim.serving.answer.metrics import bench
    from presim.serving.engines.simulate_fleet import simulate

    served = simulate(content.bench.workload, content.deployment.fleet())
    figures = bench(served, per_request=True)
    gaps = [[(latency - ttft) * slower] for latency, ttft in zip(figures["latencies"], figures["ttfts"], strict=True)]
    scaled = {name: [value * slower for value in figures[name]] for name in ("start_times", "ttfts")}
    means = {name: figures[name] * slower for name in ("mean_tpot_ms", "median_ttft_ms", "mean_ttft_ms")}
    return {**figures, **scaled, **means, "itls": gaps}


@pytest.mark.parametrize(("slower", "code"), [(1.0, 0), (60.0, 1)])
def test_the_check_agrees_with_the_prediction(slower: float, code: int, tmp_path: Path) -> None:
    """Figures of a result that is as predicted are those predicted; one that is slower misses the SLO."""
    content = written("one engine")
    write(content, tmp_path)
    (tmp_path / "result.json").write_text(json.dumps(bench_result(content, slower)))
    words = ["python3", str(tmp_path / "check_slo.py"), str(tmp_path / "result.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith((" ", "      "))][1:]
    measured = {row[1]: (float(row[2]), float(row[3])) for row in rows if row[0] == "mean"}
    assert set(measured) == {"TTFT", "TPOT", "E2EL"}
    if code == 0:
        assert all(value == predicted for value, predicted in measured.values())
        assert done.stdout.endswith("The SLO is met.\n")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ttfts": [1], "start_times": [0], "itls": [], "output_lens": []}'])
def test_a_result_without_requests_is_refused(text: str, tmp_path: Path) -> None:
    write(written("one engine"), tmp_path)
    (tmp_path / "result.json").write_text(text)
    words = ["python3", str(tmp_path / "check_slo.py"), str(tmp_path / "result.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "result.json cannot be judged: " in done.stderr


def test_files_of_an_earlier_answer_go(tmp_path: Path) -> None:
    write(written("apart"), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    write(written("one engine"), tmp_path)
    assert not (tmp_path / "prefill.sh").exists()
    assert (tmp_path / "notes.txt").exists()


def test_the_page_says_what_to_do() -> None:
    """One page, with the command that starts, measures and corrects."""
    page = files(written("apart"))["README.md"].decode()
    for words in (
        "sh start.sh",
        "kubectl apply -f kubernetes.json",
        "sh bench.sh",
        "presim calibrate serving llama3-8b",
    ):
        assert words in page
    assert len(page.splitlines()) < 40


def test_the_page_s_calibration_takes_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command on the page, with the result of engines that are slower than predicted, corrects other plans."""
    content = written("apart")
    write(content, tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("result.json").write_text(json.dumps(bench_result(content, 1.5)))
    (line,) = [line for line in Path("README.md").read_text().splitlines() if "presim calibrate serving" in line]
    words = shlex.split(line.split("`")[1])[2:]
    done = CliRunner().invoke(calibrate, words)
    assert done.exit_code == 0, done.output
    scale = json.loads(Path("overheads.json").read_text())["overheads"]["step_scale"]
    assert scale > 1.1
    asked = "llama3-8b --gpu h100-sxm --input 300 --output 40 --slo tpot:20 --max-gpus 1 --weights bf16 --json -"
    plain, corrected = (
        json.loads(CliRunner().invoke(deploy, shlex.split(f"{asked} {option}")).stdout)["best"]["request_rate"]
        for option in ("", "--overheads overheads.json")
    )
    assert corrected < 0.95 * plain


def mixed_folder(router: RouterProgram | None = None) -> DeploymentFolder:
    """Prefill on one L40S, decode on two H100."""
    decode = point(replicas=1, prefill=1, tp=2)
    prefill = engine_of("llama3-8b", "l40s", dataclasses.replace(decode.engine.plan, tp=1))
    return folder(dataclasses.replace(decode, prefill=prefill, gpus=3), router=router)


@pytest.mark.parametrize("router", [None, "dynamo", "llm-d"])
def test_roles_with_gpus_of_their_own_choose_their_machines(router: RouterProgram | None) -> None:
    """By NVIDIA's label of the product; nothing is written for one machine, and the rehearsal has both GPUs."""
    content = mixed_folder(router)
    texts = files(content)
    manifest = texts["kubernetes.json"].decode()
    assert manifest.count('"nvidia.com/gpu.product": "NVIDIA-L40S"') == 1
    assert manifest.count('"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"') == 1
    assert not {"start.sh", "compose.json"} & set(texts)
    assert "--gpu h100-sxm --tp 2" in texts["rehearse.sh"].decode()
    assert "--prefill-tp 1 --prefill-gpu l40s" in texts["rehearse.sh"].decode()


def test_one_kind_of_gpu_needs_no_label() -> None:
    assert b"nvidia.com/gpu.product" not in files(written("apart"))["kubernetes.json"]


@pytest.mark.parametrize("kind", [kind for kind, (_, router) in KINDS.items() if router == "llm-d"])
def test_llm_d_routes_to_pods_of_its_pool(kind: str) -> None:
    """The router's values select the labels and the port of the pods that answer; decode pods have the sidecar."""
    content = written(kind)
    texts = files(content)
    router = json.loads(texts["llm-d-router.json"])["router"]
    config = json.loads(router["epp"]["pluginsCustomConfig"][router["epp"]["pluginsConfigFile"]])
    declared = {plugin["type"] for plugin in config["plugins"]}
    for profile in config["schedulingProfiles"]:
        assert {plugin["pluginRef"] for plugin in profile["plugins"]} <= declared
    (target,) = router["modelServers"]["targetPorts"]
    labels = router["modelServers"]["matchLabels"].items()
    for item in [item for item in items(content) if item["kind"] == "StatefulSet"]:
        template = item["spec"]["template"]
        assert labels <= template["metadata"]["labels"].items()
        answering = [*template["spec"].get("initContainers", []), *template["spec"]["containers"]][0]
        assert answering["ports"] == [{"containerPort": target["number"]}]
        is_decode = template["metadata"]["labels"].get("llm-d.ai/role") == "decode"
        assert is_decode == (answering["name"] == "routing-proxy")
    assert "helm install presim oci://ghcr.io/llm-d/charts/llm-d-router-standalone --version v0.9.0" in (
        texts["README.md"].decode()
    )


def test_llm_d_is_written_for_vllm_on_one_machine() -> None:
    with pytest.raises(InputError, match=r"written for vLLM's engines; use --router sglang or dynamo"):
        files(folder(point(kernels="sglang"), router="llm-d"))
    with pytest.raises(InputError, match=r"engines of one machine, and TP8 PP2 bf16 has 16 GPUs on machines of 8; use"):
        files(folder(point(tp=8, pp=2), router="llm-d"))


@pytest.mark.parametrize(
    ("plan", "container"),
    [
        ({}, "vllm/vllm-openai:v0.33.0"),
        ({"engine_version": "0.19"}, "vllm/vllm-openai:v0.19.0"),
        ({"engine_version": "0.6.3.post1"}, "vllm/vllm-openai:v0.6.3.post1"),
        ({"engine_version": "v0.5.3", "kernels": "sglang"}, "lmsysorg/sglang:v0.5.3"),
    ],
)
def test_containers_have_the_version_that_was_simulated(plan: dict[str, Any], container: str) -> None:
    """A version whose arguments presim does not know is named first in the page."""
    texts = files(folder(point(**plan)))
    (service,) = json.loads(texts["compose.json"])["services"].values()
    assert service["image"] == container
    assert ("compare the arguments" in texts["README.md"].decode()) == bool(plan)
