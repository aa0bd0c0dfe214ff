"""Plans of torchtitan's runs: plain FSDP2 with tensor parallelism, or its own trainer where more is parallel.

What PyTorch's torchtitan of 2024 did where a row does not say it: as many micro-batches as pipeline stages
(``pipeline_parallel_microbatches`` of its configuration), and FP8 by the tensor.
"""

from __future__ import annotations

import dataclasses
import re

from presim.hardware.cluster import Cluster
from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.models import plain_name, published_key
from presim_study.plan import (
    Plan,
    accumulation,
    checkpointing,
    cluster_of,
    decoder_shapes,
    needs_installed,
    options,
    steps_for,
)
from presim_study.plans.trainer import LLAMAS, Model, Trainer, batch_of, model_of, plan_trainer

_FSDP2, _EARLIER = "llama_fsdp2.py", "llama_torchtitan.py"
_LATER = "2025-09"  # by then cuDNN's attention came first on every GPU, and torchtitan's models were written anew
_LOGGED_EVERY = 10  # steps, the first by itself: its metrics' default
_MODELS = {
    **LLAMAS,
    "llama31405b": Model("llama3", "405B"),
    "deepseekv316b": Model("deepseek_v3", "16B"),
    "deepseekv3671b": Model("deepseek_v3", "671B"),
    "deepseekv3": Model("deepseek_v3", "671B"),
    "deepseekv2": Model("deepseek_v3", "236B"),
    "deepseekv2lite": Model("deepseek_v3", "16B"),  # whose shapes torchtitan's smallest has
    "qwen330ba3b": Model("qwen3", "30B-A3B"),
    "qwen3235ba22b": Model("qwen3", "235B-A22B"),
    "qwen306b": Model("qwen3", "0.6B"),
    "qwen317b": Model("qwen3", "1.7B"),
    "qwen34b": Model("qwen3", "4B"),
    "qwen38b": Model("qwen3", "8B"),
    "qwen314b": Model("qwen3", "14B"),
    "qwen332b": Model("qwen3", "32B"),
    "gptoss20b": Model("gpt_oss", "20b"),
    "gptoss120b": Model("gpt_oss", "120b"),
}


def plan_torchtitan(case: Case) -> Plan:
    """A Llama with at most tensor parallelism runs PyTorch alone; all else torchtitan's trainer.

    Raises:
        CannotBuildError: the case needs what neither has.
    """
    cluster = cluster_of(case)
    traced, replicas = "graph_trainer" in case.text("framework"), _replicas(case)
    if not traced and "simplefsdp" in re.sub("[ _-]", "", f"{case.text('sharding')} {case.text('framework')}".lower()):
        raise CannotBuildError("the recipe shards with FSDP2, and the case with SimpleFSDP")
    own = not replicas and not traced and not any(case.count(axis, 1) > 1 for axis in ("pp", "cp", "ep"))
    if not own or _is_another_family(case):
        return _trainer(case, cluster, replicas)
    split = case.count("tp", 1)
    batch = _local_batch(case, cluster.world_size // split)
    micro_batches = accumulation(Case({**case.row, "micro_batch": str(batch)}), cluster.world_size // split)
    return Plan(
        _EARLIER if "" < case.text("date") < _LATER else _FSDP2,
        options(
            **decoder_shapes(case),
            sequence=case.count("seq_len"),
            batch=batch,
            tensor_parallel=split,
            accumulate=micro_batches,
            checkpoint=_kept(case),
            compile=case.is_on("compile"),
            async_tensor_parallel="async" in case.text("other").lower(),
            float8=_float8(case),
        ),
        cluster,
        steps=steps_for(micro_batches),
    )


def _is_another_family(case: Case) -> bool:
    """Whether torchtitan has the model, and its layers are not Llama's."""
    model = next((_MODELS[key] for key in (published_key(case), plain_name(case)) if key in _MODELS), None)
    return model is not None and model.family != "llama3"


def _replicas(case: Case) -> int | None:
    """How many groups of GPUs hold the whole model, where FSDP splits it within each; None: it splits over all."""
    said = case.text("sharding").lower()
    if "hsdp" not in said and "hybrid" not in said:
        return case.count("dp", 0) if re.search(r"\bddp\b", said) and "fsdp" not in said else None
    counts = re.search(r"(\d+) ?x ?(\d+)", said) or re.search(r"replicat\w*[ =:]+(\d+)", said)
    if counts is None:
        raise CannotBuildError(f"sharding = {case.text('sharding')!r} does not say how many replicas: HSDP 4x8")
    return int(counts[1])


def _local_batch(case: Case, replicas: int) -> int:
    """Samples of a replica at a time; torchtitan's are all of a step unless it is told otherwise."""
    if case.text("micro_batch"):
        return case.count("micro_batch")
    total = case.count("global_batch", 0)
    is_told = "batch" in case.text("other") or bool(case.text("grad_accum"))
    if not is_told and replicas and total and total % replicas == 0:
        return total // replicas
    return batch_of(case)


def _trainer(case: Case, cluster: Cluster, replicas: int | None) -> Plan:
    """What its own trainer does."""
    other = case.text("other").lower()
    if "asyncep" in other:
        raise CannotBuildError(
            "the case has MinimalAsyncEP, which writes into other GPUs' memory: that is not emulated"
        )
    stages = case.count("pp", 1)
    batch, micro, total = _batches(case, stages)
    trainer = Trainer(
        sequence=case.count("seq_len"),
        batch=batch,
        microbatch=micro,
        global_batch=total,
        replicas=replicas,
        tensor_parallel=case.count("tp", 1),
        pipeline_parallel=stages,
        context_parallel=case.count("cp", 1),
        expert_parallel=case.count("ep", 1),
        schedule=_schedule(other),
        checkpoint=_kept(case),
        chunked_loss="chunkedce" in other,
        compile=case.is_on("compile"),
        async_tensor_parallel="async" in other,
        float8=_float8(case),
        traced="graph_trainer" in case.text("framework"),
        graphs="cudagraph" in other,
    )
    return dataclasses.replace(plan_trainer(model_of(case, _MODELS), trainer, cluster), logged_at=_logged_at(other))


def _logged_at(other: str) -> int:
    """The step whose log the case quotes, where that is the first since step 1: its rate is the mean of all between."""
    said = re.search(r"\bstep ?(\d+)\b", other)
    return int(said[1]) if said and int(said[1]) <= _LOGGED_EVERY else 0


def _batches(case: Case, stages: int) -> tuple[int, int | None, int | None]:
    """Of one replica in a step or part of it, of a micro-batch of its pipeline, of all replicas together."""
    batch = batch_of(case)
    if stages == 1:
        return batch, None, case.count("global_batch", 0) or None
    counted = re.search(r"(\d+) micro-?batches|micro-?batches ?[=:] ?(\d+)", case.text("other").lower())
    pieces = int(counted[1] or counted[2]) if counted else stages
    micro = case.count("micro_batch", 0) or batch // pieces
    if not micro or batch % micro:
        raise CannotBuildError(f"a batch of {batch} does not make {pieces} micro-batches")
    return batch, micro, case.count("global_batch", 0) or None


_SCHEDULES = (  # words -> PyTorch's name; what others contain stands after them
    ("dualpipe", "DualPipeV"),
    ("zbv", "ZBVZeroBubble"),
    ("interleavedzerobubble", "InterleavedZeroBubble"),
    ("interleavedzb", "InterleavedZeroBubble"),
    ("loopedbfs", "LoopedBFS"),
    ("interleaved", "Interleaved1F1B"),
    ("1f1b", "1F1B"),
    ("gpipe", "GPipe"),
)


def _schedule(other: str) -> str | None:
    """PyTorch's name of the pipeline's schedule; its default where there is no pipeline."""
    said = re.sub("[ _-]", "", other)
    name = next((name for words, name in _SCHEDULES if words in said), None)
    if "zerobubble" in said and name in (None, "1F1B"):
        raise CannotBuildError("PyTorch's zero-bubble schedules are ZBV and interleaved; the case does not say which")
    return name


def _kept(case: Case) -> str:
    if not case.text("act_ckpt"):
        return "selective"  # torchtitan's default
    return "full" if case.text("act_ckpt") == "memory_policy=full" else checkpointing(case)


def _float8(case: Case) -> str | None:
    """torchao's recipe, where the case has one."""
    said = case.precision()
    if "fp8" in said and "mx" not in said:
        if "gw" in said:
            raise CannotBuildError("the recipe computes gradients of weights in float8, and the case in bf16")
        needs_installed("torchao")
        return "rowwise" if "row" in said else "tensorwise"
    if "bf16" not in said or re.search(r"fp4|fp8|int8", said):
        raise CannotBuildError(f"the recipe computes in bf16 or float8, and the case in {case.text('precision')!r}")
    return None
