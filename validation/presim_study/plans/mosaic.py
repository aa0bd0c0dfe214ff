"""Plans of llm-foundry's runs: MPT by Composer, sharded with PyTorch's first FSDP."""

from __future__ import annotations

import re

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.models import published_key
from presim_study.plan import (
    Plan,
    accumulation,
    checkpointing,
    cluster_of,
    decoder_shapes,
    needs_installed,
    only_one,
    options,
    steps_for,
)


def plan_mosaic(case: Case) -> Plan:
    """Full shards or of gradients alone, in bf16 or FP8.

    Raises:
        CannotBuildError: the case is parallel in another way or in another precision, or Transformer Engine is needed
            and not installed.
    """
    only_one(case, "tp", "pp", "cp", "ep")
    precision, sharding = case.precision(), case.text("sharding").upper()
    if not re.search("bf16|fp8", precision):
        raise CannotBuildError(f"the recipe computes in bf16 or FP8, and the case in {case.text('precision')!r}")
    if re.search("HYBRID|NO_SHARD|^DDP", sharding):
        raise CannotBuildError(f"the recipe shards over all GPUs, and the case's sharding is {case.text('sharding')!r}")
    if published_key(case):  # by name another kind of decoder than MPT
        raise CannotBuildError(f"the recipe builds MPT, and the case's model is {case.text('model')!r}")
    in_fp8 = "fp8" in precision
    if in_fp8:
        needs_installed("transformer_engine")
    cluster = cluster_of(case)
    micro_batches = accumulation(case, cluster.world_size)
    shapes = decoder_shapes(case)
    del shapes["kv_heads"]
    return Plan(
        "mpt_fsdp1.py",
        options(
            **shapes,
            sequence=case.count("seq_len"),
            batch=case.count("micro_batch"),
            accumulate=micro_batches,
            checkpoint=bool(case.text("act_ckpt")) and checkpointing(case) == "full",  # off in its configurations
            fp8=in_fp8,
            sharding="grad" if "SHARD_GRAD_OP" in sharding else "full",
            mixed_precision="pure" if "PURE" in case.text("sharding") else "default",
        ),
        cluster,
        steps=steps_for(micro_batches),
    )
