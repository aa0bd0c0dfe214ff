"""What Megatron-LM's own functional tests run on where a table of them does not say it.

Facts from ``tests/test_utils/recipes`` of its repository, whose every family of tests begins with ``nodes: 1``,
``gpus: 8`` and ``platforms: dgx_a100``; files of results are named after their platform unless it is that one. Long
runs before a release ("release" in the name) have more nodes, and how many is not said.

Files of results for long-term support ("lts") are of the container that was that when a test last ran with it: NVIDIA's
of 24.01 (``Dockerfile.ci.lts``), 25.09 since. Of the former are those that are named after the cluster "dracooci", and
those for DGX A100 of tests that the recipes in ``recipes/h100`` have not kept. Transformer Engine finds no fused
attention there that is deterministic: flash-attn's backward pass can be since 2.4.1, cuDNN's is not on an A100. Their
memory says so, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from presim.hardware.cluster import Cluster
from presim.studies.validation.cases import Case
from presim.studies.validation.gpus import gpu_of
from presim_study.megatron_family.flags import flags_of
from presim_study.plan import options

RECIPE = "megatron_tests.py"
_SOURCE = "Megatron-LM:tests/functional_tests/"
_PLATFORM, _GPUS = "A100 (DGX A100)", "8"
_NO_DROPOUT = {"attention-dropout": "0.0", "hidden-dropout": "0.0"}
_ROTARY = {**_NO_DROPOUT, "position-embedding-type": "rope"}
_LARGE, _SMALL = ":4096:8", ":4096:2:16:8"  # CUBLAS_WORKSPACE_CONFIG: of most tests, and PyTorch's own before Blackwell
_BETWEEN_STEPS_NS = 13_000_000  # what their times ask for on all three machines: docs/decisions/host-factor.md
_HOST_FACTORS = {"gb200-nvl72": 1.9, "hgx-h100": 1.3}  # of machines that ran the tests: likewise
_INPUT_S = 0.0625  # of a sequence, where tests run on GitHub's machines: likewise
_HASHES = "check-weight-hash-across-dp-replicas-interval"
# Parts of layers that are graphs, as Megatron calls them -> modules, as its TransformerLayer has them:
# _get_submodules_under_cudagraphs.
_GRAPHED: Mapping[str, tuple[str, ...]] = {
    "attn": ("input_layernorm", "self_attention"),
    "mlp": ("mlp.linear_fc1", "mlp.linear_fc2"),  # of layers without experts
    "moe_router": ("pre_mlp_layernorm", "router", "shared_experts"),
    "mamba": ("mixer",),
}
_UNSAID: tuple[tuple[str, Mapping[str, str]], ...] = (
    # words of a test's name -> options of its model_config.yaml that tables of results leave out
    ("defer_embedding_wgrad_compute", {"wgrad-deferral-limit": "2"}),
    ("scoped_cudagraph", {**_ROTARY, "cuda-graph-modules": "[attn mlp moe_router moe_preprocess]"}),
    ("attn_cudagraph", {"cuda-graph-modules": "[attn]"}),
    ("te_tp2_pp2_ep4_etp1", {**_ROTARY, "normalization": "RMSNorm", "qk-layernorm": "True"}),
    ("weekly", {"normalization": "RMSNorm"}),
    ("resume_torch_dist_muon", {_HASHES: "1"}),
    ("4experts2parallel_nondeterministic", {"CUBLAS_WORKSPACE_CONFIG": _LARGE}),
    (
        "nemotron3_5_lightning",
        {
            "grad-reduce-in-bf16": "True",
            "mtp-use-repeated-layer": "True",
            "moe-flex-dispatcher-backend": "hybridep",
            "moe-flex-dispatcher-num-sms": "16",
        },
    ),
    ("uninstall_te", {"no-masked-softmax-fusion": "True"}),
    (
        "fine_grained_offloading",
        {
            "CUBLAS_WORKSPACE_CONFIG": _LARGE,
            "offload-modules": "[expert_fc1 moe_act attn_norm mlp_norm qkv_linear core_attn attn_proj]",
        },
    ),
)


def completed(case: Case) -> Case:
    """The case with the GPU, their number and the attention that it leaves unsaid; any other case as it is."""
    if _SOURCE not in case.text("source") or "release" in case.text("model"):
        return case
    row = dict(case.row)
    if not case.text("gpu") and case.text("source").endswith(("_dev.json", "_lts.json")):
        row["gpu"] = _PLATFORM
    if not case.text("n_gpus") and "GB200" not in case.text("gpu"):  # its hosts have four: its recipes say how many
        row["n_gpus"] = _GPUS
    said = {**_unsaid(case), **flags_of(case)}
    row["other"] = ";".join(f"{name}={value}" for name, value in said.items())
    if not case.text("vp") and (layout := said.get("pipeline-model-parallel-layout")):
        row["vp"] = str(_stages(layout) // case.count("pp", 1))
    return Case(row)


def _unsaid(case: Case) -> dict[str, str]:
    """Options of the test that its row does not give."""
    said = flags_of(case)
    found = {name: value for words, given in _UNSAID if words in case.text("model") for name, value in given.items()}
    deterministic = said.get("deterministic-mode") == "True"
    if case.count("cp", 1) > 1 and not deterministic:
        found |= _NO_DROPOUT
    if deterministic and said.get("transformer-impl") == "transformer_engine" and _ran_in_old_container(case):
        found["attention-backend"] = "unfused"
    return found


def _ran_in_old_container(case: Case) -> bool:
    """By the name of its file of results and by the recipe that its row names."""
    source, kept = case.text("source"), "recipes/h100" in case.text("note")
    return "golden_values_lts_dgxa100_dracooci" in source or ("golden_values_lts_dgx_a100" in source and not kept)


def _stages(layout: str) -> int:
    """Of all ranks, virtual ones included: ``Et*3|(tt|)*6L`` are eight."""
    return re.sub(r"\(([^)]*)\)\*(\d+)", lambda part: part[1] * int(part[2]), layout).count("|") + 1


def arguments(case: Case) -> tuple[str, ...]:
    """What the recipe takes besides the arguments of a decoder's.

    cuBLAS' workspaces are 32 MiB a handle where the test says so or is deterministic. Else they are PyTorch's, which
    was 8 MiB on Blackwell in the containers of the tests' recordings and is 32 MiB today.
    """
    said = flags_of(case)
    before = _SMALL if gpu_of(case).startswith(("b", "gb")) else None
    deterministic = said.get("deterministic-mode") == "True"
    return options(
        workspaces=None if deterministic else said.get("CUBLAS_WORKSPACE_CONFIG", before),
        hash_weights=said.get(_HASHES) == "1",
    )


def is_one(case: Case) -> bool:
    """Whether the case is such a test: its steps wait for what the trainer checks and logs in each.

    That changes when hosts wait, and not what is kept; where memory alone was measured it runs all the same, so that a
    test's rows in a table of times and in one of memory share captures.
    """
    return _SOURCE in case.text("source")


def graphed_modules(case: Case) -> tuple[str, ...]:
    """Modules that the case's options have launched as CUDA graphs.

    The host asks once for each stretch of them. What graphs keep for themselves is not in the memory.
    """
    parts = flags_of(case).get("cuda-graph-modules", "").strip("[]").split()
    return tuple(module for part in parts for module in _GRAPHED.get(part, ()))


def between_steps_ns(case: Case) -> int:
    """What a test's host does in each step beside what the recipe has, of the reference host."""
    return _BETWEEN_STEPS_NS if is_one(case) else 0


def on_its_hosts(case: Case, cluster: Cluster) -> Cluster:
    """The cluster with hosts as fast as those that ran the tests, where they are not as others of the type are."""
    factor = _HOST_FACTORS.get(cluster.node.id) if is_one(case) else None
    if factor is None:
        return cluster
    return replace(cluster, node=replace(cluster.node, host_factor=factor))


def input_s(case: Case, micro_batches: int) -> float:
    """How long the input of a step took to come where it was waited for: in tests on one of GitHub's machines."""
    waits = is_one(case) and case.text("model").endswith("_1node")
    return _INPUT_S * case.count("micro_batch") * micro_batches if waits else 0.0
