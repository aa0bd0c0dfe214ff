"""Plans of torchtitan's runs: plain FSDP2 with tensor parallelism, or its own trainer where more is parallel.

What PyTorch's torchtitan of 2024 did where a row does not say it: as many micro-batches as pipeline stages
(``pipeline_parallel_microbatches`` of its configuration), and FP8 by the tensor.
"""

from __future__ import annotations

import importlib.util
import re

from presim.hardware.cluster import Cluster
from presim.validation.cases import CannotBuildError, Case
from presim.validation.models import plain_name
from presim.validation.plan import Plan, accumulation, checkpointing, cluster_of, decoder_shapes, options, steps_for

_FSDP2, RECIPE = "llama_fsdp2.py", "torchtitan_trainer.py"
_FLAVORS = {  # as tables write a model -> module of its family, size
    "llama38b": ("llama3", "8B"),
    "llama318b": ("llama3", "8B"),
    "llama370b": ("llama3", "70B"),
    "llama3170b": ("llama3", "70B"),
    "llama31405b": ("llama3", "405B"),
    "deepseekv316b": ("deepseek_v3", "16B"),
    "deepseekv3671b": ("deepseek_v3", "671B"),
    "deepseekv3": ("deepseek_v3", "671B"),
    "qwen330ba3b": ("qwen3", "30B-A3B"),
    "qwen3235ba22b": ("qwen3", "235B-A22B"),
    "qwen332b": ("qwen3", "32B"),
    "gptoss20b": ("gpt_oss", "20b"),
    "gptoss120b": ("gpt_oss", "120b"),
}


def plan_torchtitan(case: Case) -> Plan:
    """A Llama with at most tensor parallelism runs PyTorch alone; all else torchtitan's trainer.

    Raises:
        CannotBuildError: the case needs what neither has.
    """
    cluster = cluster_of(case)
    if "graph_trainer" in case.text("framework") or any(case.count(axis, 1) > 1 for axis in ("pp", "cp", "ep")):
        return _trainer(case, cluster)
    if "simple_fsdp" in case.text("sharding"):
        raise CannotBuildError("the recipe shards with FSDP2, and the case with SimpleFSDP")
    split = case.count("tp", 1)
    micro_batches = accumulation(case, cluster.world_size // split)
    return Plan(
        _FSDP2,
        options(
            **decoder_shapes(case),
            sequence=case.count("seq_len"),
            batch=case.count("micro_batch"),
            tensor_parallel=split,
            accumulate=micro_batches,
            checkpoint=checkpointing(case),
            compile=case.text("compile").lower() == "true",
            async_tensor_parallel="async" in case.text("other").lower(),
            float8=_float8(case),
        ),
        cluster,
        steps=steps_for(micro_batches),
    )


def _trainer(case: Case, cluster: Cluster) -> Plan:
    """Its own trainer; one rank of each pipeline stage is captured."""
    if importlib.util.find_spec("torchtitan") is None:
        raise CannotBuildError("torchtitan is not installed: make frameworks")
    if "asyncep" in case.text("other").lower():
        raise CannotBuildError(
            "the case has MinimalAsyncEP, which writes into other GPUs' memory: that is not emulated"
        )
    family, flavor = _flavor(case)
    stages, other = case.count("pp", 1), case.text("other").lower()
    batch, micro, total = _batches(case, stages)
    traced = "graph_trainer" in case.text("framework")
    return Plan(
        RECIPE,
        options(
            family=family,
            flavor=flavor,
            sequence=case.count("seq_len"),
            batch=batch,
            microbatch=micro,
            global_batch=total,
            tensor_parallel=case.count("tp", 1),
            pipeline_parallel=stages,
            context_parallel=case.count("cp", 1),
            expert_parallel=case.count("ep", 1),
            schedule=_schedule(other),
            checkpoint=_kept(case),
            chunked_loss="chunkedce" in other,
            compile=case.text("compile").lower() == "true",
            async_tensor_parallel="asynctp" in other,
            float8=_float8(case),
            traced=traced,
            graphs="cudagraph" in other,
        ),
        cluster,
        tuple(range(0, cluster.world_size, cluster.world_size // stages)),
    )


def _flavor(case: Case) -> tuple[str, str]:
    name = plain_name(case)
    if name not in _FLAVORS:
        raise CannotBuildError(f"the recipe has no model {case.text('model')!r}")
    return _FLAVORS[name]


def batch_of(case: Case) -> int:
    """Samples of one replica in a step, or in one of the parts whose gradients are summed."""
    said = re.search(r"local_batch=(\d+)", case.text("other"))
    return int(said[1]) if said else case.count("micro_batch")


def _batches(case: Case, stages: int) -> tuple[int, int | None, int | None]:
    """Of one replica in a step or part of it, of a micro-batch of its pipeline, of all replicas together."""
    batch = batch_of(case)
    if stages == 1:
        return batch, None, case.count("global_batch", 0) or None
    micro = case.count("micro_batch", 0) or batch // stages
    if not micro or batch % micro:
        raise CannotBuildError(f"a batch of {batch} does not make {stages} micro-batches")
    return batch, micro, case.count("global_batch", 0) or None


def _schedule(other: str) -> str | None:
    """PyTorch's name of the pipeline's schedule; its default where there is no pipeline."""
    for words, name in (("interleaved", "Interleaved1F1B"), ("1f1b", "1F1B"), ("gpipe", "GPipe")):
        if words in other.replace(" ", ""):
            return name
    return None


def _kept(case: Case) -> str:
    return "full" if case.text("act_ckpt") == "memory_policy=full" else checkpointing(case)


def _float8(case: Case) -> str | None:
    """torchao's recipe, where the case has one."""
    said = case.text("precision").lower()
    for recipe in ("rowwise", "tensorwise"):
        if "float8" in said and (recipe in said or recipe == "tensorwise"):
            if importlib.util.find_spec("torchao") is None:
                raise CannotBuildError("torchao is not installed: pip install --no-deps torchao")
            return recipe
    if said != "bf16":
        raise CannotBuildError(f"the recipe computes in bf16 or float8, and the case in {case.text('precision')!r}")
    return None
