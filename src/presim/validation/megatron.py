"""Plans of Megatron's family: tensor, pipeline and data parallelism with its own layers and optimizer."""

from __future__ import annotations

import importlib.util

from presim.validation.cases import CannotBuildError, Case
from presim.validation.plan import Plan, accumulation, cluster_of, only_one, options, steps_for


def plan_megatron(case: Case) -> Plan:
    """One rank of each pipeline stage runs the recipe.

    Raises:
        CannotBuildError: the case needs what the recipe has not, or Megatron-core is not installed.
    """
    only_one(case, "cp", "ep")
    if case.text("n_experts") not in ("", "0", "1"):
        raise CannotBuildError("the recipe has no experts")
    if importlib.util.find_spec("megatron") is None:
        raise CannotBuildError("Megatron-core is not installed: pip install megatron-core")
    cluster, split, stages = cluster_of(case), case.count("tp", 1), case.count("pp", 1)
    if cluster.world_size % (split * stages):
        raise CannotBuildError(f"{cluster.world_size} GPUs are no multiple of tp x pp = {split} x {stages}")
    micro_batches = accumulation(case, cluster.world_size // (split * stages))
    args = options(
        layers=case.count("n_layers"),
        hidden=case.count("hidden"),
        ffn=case.count("ffn"),
        heads=case.count("n_heads"),
        kv_heads=case.count("n_kv_heads", case.count("n_heads")),
        vocab=-(-case.count("vocab") // (128 * split)) * 128 * split,  # as Megatron pads it
        sequence=case.count("seq_len"),
        batch=case.count("micro_batch"),
        accumulate=micro_batches,
        tensor_parallel=split,
        pipeline_parallel=stages,
        virtual_pipeline=_virtual(case),
        sequence_parallel=case.text("seq_parallel").lower() == "true",
        distributed_optimizer="distributed" in case.text("sharding").lower(),
        overlap="overlap-grad-reduce" in case.text("sharding"),
        precision=_precision(case),
        style="llama" if "llama" in case.text("model").lower() else "gpt",
        attention="unfused" if "DeepSpeed" in case.text("framework") else None,
        checkpoint=case.text("act_ckpt").startswith("full"),
    )
    per_stage = cluster.world_size // stages
    return Plan(
        "megatron_gpt.py", args, cluster, tuple(range(0, cluster.world_size, per_stage)), steps_for(micro_batches)
    )


def _virtual(case: Case) -> int | None:
    chunks = case.count("vp", 1)
    return chunks if chunks > 1 else None


def _precision(case: Case) -> str:
    said = case.text("precision").lower()
    for name in ("bf16", "fp16"):
        if said.startswith(name):
            return name
    raise CannotBuildError(f"the recipe computes in bf16 or fp16, and the case in {case.text('precision')!r}")
