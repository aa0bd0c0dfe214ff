"""Plans of AutoModel's and torchtune's runs, which torchtitan's trainer does in their place.

All three put models of their own on the same parts of PyTorch: FSDP2, DTensor, its pipelines, checkpointing by layer.
What the rows leave to recipes is from those: ``examples/llm_benchmark`` of AutoModel, ``recipes/configs`` of torchtune.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from presim.validation.cases import CannotBuildError, Case
from presim.validation.models import plain_name
from presim.validation.plan import Plan, accumulation, checkpointing, cluster_of, options, repeats_for
from presim.validation.torchtitan import RECIPE, batch_of

_Model = tuple[str, str | None, tuple[int, ...]]  # family, flavor or none, shapes where it has no flavor, layers first
_MODELS: Mapping[str, _Model] = {
    "llama38b": ("llama3", "8B", (32,)),
    "llama318b": ("llama3", "8B", (32,)),
    "llama323b": ("llama3", "3B", (28,)),
    "llama370b": ("llama3", "70B", (80,)),
    "llama370b2node": ("llama3", "70B", (80,)),
    "llama3170b": ("llama3", "70B", (80,)),
    "qwen2532b": ("llama3", None, (64, 5120, 27648, 40, 8, 152064)),  # without the biases of its queries
    "qwen2532b2node": ("llama3", None, (64, 5120, 27648, 40, 8, 152064)),
}
_EXPERTS = ("moe", "gptoss", "deepseek")


def plan_automodel(case: Case) -> Plan:
    """AutoModel's benchmarks of dense models: weights in bf16, adapters on all layers.

    Raises:
        CannotBuildError: another model, or one of experts.
    """
    if any(word in plain_name(case) for word in _EXPERTS):
        raise CannotBuildError("AutoModel's experts run fused kernels of Transformer Engine, which the recipe has not")
    family, flavor, shapes = _model(case)
    cluster = cluster_of(case)
    stages, split = case.count("pp", 1), case.count("tp", 1)
    batch = batch_of(case)
    replicas = cluster.world_size // (stages * split * case.count("cp", 1))
    step = accumulation(Case({**case.row, "micro_batch": str(batch)}), replicas)
    repeats = repeats_for(step, 1)
    lora = "[lora]" in case.text("model").lower()
    alone = cluster.world_size == 1  # its recipe of one GPU computes nothing again
    return Plan(
        RECIPE,
        options(
            family=family,
            flavor=flavor,
            shapes=",".join(map(str, shapes)) if flavor is None else None,
            sequence=case.count("seq_len"),
            batch=batch,
            microbatch=case.count("micro_batch") if stages > 1 else None,
            accumulate=f"1,{repeats.first},{repeats.second}" if repeats else step,
            tensor_parallel=split,
            pipeline_parallel=stages,
            context_parallel=case.count("cp", 1),
            **_stages(case, shapes[0]),
            dtype="bfloat16",
            lora=16 if lora else None,
            checkpoint="none" if alone else "full",
            compile=stages == 1,  # which puts together what Transformer Engine's kernels do there
            async_tensor_parallel=split > 1 and stages == 1,
        ),
        cluster,
        tuple(range(0, cluster.world_size, cluster.world_size // stages)),
        repeats=repeats,
    )


def plan_torchtune(case: Case) -> Plan:
    """torchtune's recipes: weights in bf16, the loss in pieces, adapters of rank 8 (16 for 70B).

    Raises:
        CannotBuildError: another model, or weights in four bits.
    """
    family, flavor, _ = _model(case)
    name, other = case.text("model").lower(), case.text("other").lower()
    if "[qlora]" in name:
        raise CannotBuildError("the recipe has no weights in four bits")
    cluster = cluster_of(case)
    large = flavor == "70B"
    full = "[full" in name
    return Plan(
        RECIPE,
        options(
            family=family,
            flavor=flavor,
            sequence=case.count("seq_len"),
            batch=case.count("micro_batch"),
            dtype="bfloat16",
            lora=None if full else 16 if large else 8,
            checkpoint="full" if case.text("act_ckpt").startswith("recipe") else checkpointing(case),
            chunked_loss=True,
            compile=case.text("compile").lower() == "true",
            offload="cpu offload" in other,
        ),
        cluster,
    )


def _model(case: Case) -> _Model:
    if importlib.util.find_spec("torchtitan") is None:
        raise CannotBuildError("torchtitan is not installed: make frameworks")
    name = plain_name(case)
    if name not in _MODELS:
        raise CannotBuildError(f"the recipe has no model {case.text('model')!r}")
    return _MODELS[name]


def _stages(case: Case, layers: int) -> dict[str, object]:
    """How layers go to virtual stages: in equal numbers, but for what the ends have fewer."""
    count = case.count("pp", 1) * case.count("vp", 1)
    if case.count("pp", 1) == 1:
        return {}
    each = -(-layers // count)
    spare = each * count - layers
    if spare > each:
        raise CannotBuildError(f"{layers} layers do not go to {count} stages in equal numbers")
    return {
        "schedule": "Interleaved1F1B" if case.count("vp", 1) > 1 else "1F1B",
        "layers_per_stage": each,
        "ends_count_as": f"{spare // 2},{spare - spare // 2}",
    }
