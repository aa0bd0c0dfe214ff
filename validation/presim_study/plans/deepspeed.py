"""Plans of DeepSpeed's engine: decoders of Hugging Face, ZeRO 0 to 3, data parallel over all GPUs.

Megatron-DeepSpeed's rows are not for here: their tensor and pipeline parallelism are Megatron's.
"""

from __future__ import annotations

import re

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.models import plain_name
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
from presim_study.plans.adapters import adapters_of
from presim_study.plans.single_gpu import decoder_of

_STAGE = re.compile(r"\b(?:zero[ _-]*(?:stage)?|stage)[ _=:-]*([0-3])\b")
_UNSHARDED = re.compile(r"none|no\b|no_shard|ddp|data[- ]parallel|replicated")
_OFFLOADED = re.compile(r"offload|infinity|nvme|\b(on|to) (the )?(cpu|host|ssd|disk)|cpu_?adam|zero[^;]*\bcpu\b")
_COMPRESSED = re.compile(r"\b1[- ]?bit|one-?bit|0/1|zero-?one")
_SUBGROUPS = re.compile(r"zero\+\+|\bhpz|\bqwz|\bqgz|mics\b")
_OPTIONS = re.compile(  # of zero_optimization, as its configuration writes them
    r"\b(overlap_comm|contiguous_gradients|reduce_scatter|allgather_partitions|round_robin_gradients"
    r"|reduce_bucket_size|allgather_bucket_size|stage3_\w+|sub_group_size)\s*[=:]\s*([\w.+]+)"
)


def plan_deepspeed(case: Case) -> Plan:
    """Training of all weights or of adapters in fp16 or bf16; what a case does not say is DeepSpeed's default.

    Raises:
        CannotBuildError: the case is parallel in another way, offloads, has another precision or model.
    """
    only_one(case, "tp", "pp", "cp", "ep")
    stage = _stage_of(case)
    precision = re.match(r"(bf16|fp16)\b", case.precision())
    if precision is None:
        raise CannotBuildError(f"the recipe computes in bf16 or fp16, and the case in {case.text('precision')!r}")
    adapters = adapters_of(case)
    if _COMPRESSED.search(case.text("optimizer").lower()):
        raise CannotBuildError(f"the recipe's optimizer is Adam, and the case's is {case.text('optimizer')}")
    model, shapes = _model_of(case)
    for package in ("deepspeed", "peft") if adapters else ("deepspeed",):
        needs_installed(package)
    cluster = cluster_of(case)
    micro_batches = accumulation(case, cluster.world_size)
    chosen = ",".join(f"{name}={value}" for name, value in _OPTIONS.findall(case.text("other").lower()))
    return Plan(
        "deepspeed_gpt.py",
        options(
            model=model,
            shapes=shapes,
            sequence=case.count("seq_len"),
            batch=case.count("micro_batch"),
            accumulate=micro_batches,
            precision=precision[1],
            zero=stage,
            zero_options=chosen or None,
            checkpoint=_computes_again(case),
        )
        + (adapters.options() if adapters else ()),
        cluster,
        steps=steps_for(micro_batches),
    )


def _computes_again(case: Case) -> bool:
    """Whether every layer is computed again.

    Raises:
        CannotBuildError: some of its operators are.
    """
    if (again := checkpointing(case)) == "selective":
        raise CannotBuildError(
            f"the recipe computes whole layers again or nothing, and the case's act_ckpt is {case.text('act_ckpt')!r}"
        )
    return again == "full"


def _stage_of(case: Case) -> int:
    """ZeRO's, by the column ``sharding``, else by what the framework and ``other`` say.

    Raises:
        CannotBuildError: none of them says which, or what is sharded does not stay on its GPU or in one group.
    """
    sharding = case.text("sharding").lower()
    said = f"{sharding}; {case.text('framework')}; {case.text('other')}; {case.text('optimizer')}".lower()
    if _OFFLOADED.search(said):
        raise CannotBuildError("the recipe keeps all on the GPU, and the case offloads to the host or to disks")
    if _SUBGROUPS.search(said):
        raise CannotBuildError("the recipe shards over all GPUs in 16 bits, and the case by ZeRO++ or MiCS")
    if found := _STAGE.search(said):
        return int(found[1])
    if _UNSHARDED.match(sharding):
        return 0
    raise CannotBuildError(f"sharding = {case.text('sharding')!r} does not say which stage of ZeRO: ZeRO-2")


def _model_of(case: Case) -> tuple[str, str | None]:
    """A published decoder; else a GPT of the sizes that the cells give."""
    if plain_name(case).startswith("gpt") and case.text("n_layers"):
        return "gpt", ",".join(map(str, decoder_shapes(case).values()))
    return decoder_of(case)
