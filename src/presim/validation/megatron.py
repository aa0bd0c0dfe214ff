"""Plans of Megatron's family: tensor, pipeline, context, expert and data parallelism, its own layers and optimizer."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from presim.validation.cases import CannotBuildError, Case
from presim.validation.models import published_shapes
from presim.validation.plan import Plan, accumulation, cluster_of, options, steps_for

_OTHER_FAMILIES = ("bert", "t5", "mimo", "hybrid", "llava", "nemotron", "grpo", "mamba", "frozen", "diffusion")


def plan_megatron(case: Case) -> Plan:
    """One rank of each pipeline stage runs the recipe.

    Raises:
        CannotBuildError: the case needs what the recipe has not, or Megatron-core is not installed.
    """
    if family := next((word for word in _OTHER_FAMILIES if word in case.text("model").lower()), None):
        raise CannotBuildError(f"the recipe builds decoders for pre-training, and the case is of the kind {family!r}")
    for unknown in ("sft", "lora"):
        if unknown in case.text("model").lower() or unknown in case.text("sharding").lower():
            raise CannotBuildError(f"the recipe has no {unknown.upper()}")
    if "fsdp" in case.text("sharding").lower():
        raise CannotBuildError("the recipe has no FSDP of Megatron's own")
    if importlib.util.find_spec("megatron") is None:
        raise CannotBuildError("Megatron-core is not installed: pip install --no-deps megatron-core")
    said = flags_of(case)
    engine = _engine(case, said)
    split, stages, context = (case.count(axis, 1) for axis in ("tp", "pp", "cp"))
    cluster = cluster_of(case)
    model_parallel = split * stages * context
    if cluster.world_size % model_parallel:
        raise CannotBuildError(f"{cluster.world_size} GPUs are no multiple of tp x pp x cp = {model_parallel}")
    micro_batches = accumulation(case, cluster.world_size // model_parallel)
    shapes = published_shapes(case)
    args = options(
        layers=shapes.layers,
        hidden=shapes.hidden,
        ffn=shapes.ffn,
        heads=shapes.heads,
        kv_heads=shapes.kv_heads,
        vocab=-(-shapes.vocab // (128 * split)) * 128 * split,  # as Megatron pads it
        sequence=case.count("seq_len"),
        batch=case.count("micro_batch"),
        accumulate=micro_batches,
        tensor_parallel=split,
        pipeline_parallel=stages,
        context_parallel=context if context > 1 else None,
        expert_parallel=_above_one(case, "ep"),
        expert_tensor_parallel=case.count("etp") if case.text("etp") else None,
        virtual_pipeline=_above_one(case, "vp"),
        sequence_parallel=_sequence_parallel(case, split),
        distributed_optimizer="distributed" in case.text("sharding").lower(),
        overlap="overlap-grad-reduce" in said or "overlap-grad-reduce" in case.text("sharding") or _tuned(case),
        precision="fp16" if case.text("precision").lower().startswith("fp16") else "bf16",
        gradients="model" if _tuned(case) else None,
        style=shapes.style,
        tied=shapes.tied,
        positions=shapes.positions,
        engine=engine,
        attention="unfused" if engine == "local" and _unfused(case, said) else None,
        no_weight_gradient_fusion="no-gradient-accumulation-fusion" in said or "DeepSpeed" in case.text("framework"),
        checkpoint=case.text("act_ckpt").startswith("full"),
    )
    fields = {**shapes.fields, **_number_format(case, said)}
    settings = [part for name in sorted(fields) for part in ("--set", f"{name}={fields[name]!r}")]
    per_stage = cluster.world_size // stages
    ranks = tuple(range(0, cluster.world_size, per_stage))
    return Plan("megatron_gpt.py", (*args, *settings), cluster, ranks, steps_for(micro_batches))


def flags_of(case: Case) -> Mapping[str, str]:
    """What the case says of Megatron's own options: ``name=value;name=value``."""
    words = (part.partition("=") for part in case.text("other").split(";"))
    return {name.strip(): value for name, _, value in words if name.strip()}


def _above_one(case: Case, axis: str) -> int | None:
    count = case.count(axis, 1)
    return count if count > 1 else None


def _tuned(case: Case) -> bool:
    """Published by those who tune the framework: what communicates is overlapped, gradients are summed in bf16."""
    return any(word in case.text("framework") for word in ("Bridge", "NeMo"))


def _sequence_parallel(case: Case, split: int) -> bool:
    """Tuned runs with tensor parallelism have it; others say so."""
    return case.text("seq_parallel").lower() == "true" or (_tuned(case) and split > 1)


def _engine(case: Case, said: Mapping[str, str]) -> str:
    """Transformer Engine where the case used it, if it is installed here.

    Raises:
        CannotBuildError: the case cannot be built without it, and it is not installed.
    """
    used = said.get("transformer-impl") == "transformer_engine" or "TE" in case.text("framework") or _tuned(case)
    if used and importlib.util.find_spec("transformer_engine") is not None:
        return "te"
    needs = {
        "FP8": _fp8(case),
        "context parallelism": case.count("cp", 1) > 1,
        "experts": case.text("n_experts") not in ("", "0", "1") or case.count("ep", 1) > 1,
    }
    if missing := next((name for name, needed in needs.items() if needed), None):
        raise CannotBuildError(
            f"the case has {missing}, which Megatron computes with Transformer Engine, and that is not installed"
        )
    return "local"


def _unfused(case: Case, said: Mapping[str, str]) -> bool:
    return "DeepSpeed" in case.text("framework") or said.get("attention-backend") in ("unfused", "local")


def _fp8(case: Case) -> bool:
    return any(name in case.text("precision").lower() for name in ("fp8", "fp4"))


def _number_format(case: Case, said: Mapping[str, str]) -> dict[str, object]:
    """Fields of TransformerConfig for what the products compute in."""
    text = case.text("precision").lower()
    if "fp4" in text:
        raise CannotBuildError("the recipe has no FP4")
    if "fp8" not in text:
        if not text.startswith(("bf16", "fp16")):
            raise CannotBuildError(
                f"the recipe computes in bf16, fp16 or FP8, and the case in {case.text('precision')!r}"
            )
        return {}
    recipe = said.get("fp8-recipe") or ("mxfp8" if "mx" in text else "tensorwise" if _scaled_now(text) else "delayed")
    return {
        "fp8": "e4m3" if recipe == "mxfp8" else "hybrid",
        "fp8_recipe": recipe,
        "fp8_param": _tuned(case) and recipe != "mxfp8",
    }


def _scaled_now(text: str) -> bool:
    return "cs" in text.replace("-", " ").split() or "current" in text
