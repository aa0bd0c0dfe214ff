"""Published runs of torchtitan, Hugging Face's layers and what is like them, as plans of `presim compose --framework`.

A row's plan, precision, recomputation and compilation are taken; all else is at the defaults that everyone gets.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from presim.composition.plan import Plan
from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.models import plain_name
from presim_study.plan import accumulation, checkpointing, decoder_shapes
from presim_study.planners import completed

ASYNC = "--compile.enable_async_tensor_parallel"
_NAMED = {  # as tables write them -> as presim does
    "llama38b": "llama3-8b",
    "llama318b": "llama3-8b",
    "llama370b": "llama3-70b",
    "llama370b2node": "llama3-70b",
    "llama3170b": "llama3-70b",
    "llama31405b": "llama3-405b",
    "llama323b": "llama3-3b",
    "llama27b": "llama2-7b",
    "llama213b": "llama2-13b",
    "llama270b": "llama2-70b",
    "qwen2532b": "qwen2.5-32b",
    "qwen2532b2node": "qwen2.5-32b",
    "qwen330ba3b": "qwen3-30b-a3b",
    "gptoss20b": "gpt-oss-20b",
    "gptoss120b": "gpt-oss-120b",
    "deepseekv3671b": "deepseek-v3",
}
_RECIPES = ("recipe", "see ")  # how a cell begins that leaves recomputation to the framework's recipe


@dataclasses.dataclass(frozen=True)
class TrainerRun:
    """What `presim compose` is asked for."""

    framework: str
    model: str | Mapping[str, Any]  # a name, or a config
    plan: Plan
    arguments: tuple[str, ...] = ()  # the framework's own
    memory_alone: bool = False  # the row has no step time that a plan could say


def run_of(case: Case) -> TrainerRun:
    """The plan of a row.

    Raises:
        CannotBuildError: no framework here has what the row says; the reason begins with a word for its kind.
    """
    framework = case.text("framework").lower()
    reader = next((reader for word, reader in _READERS.items() if framework.startswith(word)), None)
    if reader is None:
        raise CannotBuildError("framework: of another kind than torchtitan or Hugging Face's")
    return reader(completed(case))


def _torchtitan(case: Case) -> TrainerRun:
    said = case.text("other").lower()
    if "graph_trainer" in case.text("framework"):
        raise CannotBuildError("trainer: torchtitan's experimental graph trainer, not its own one")
    passes = {"bf16": (), "float8 rowwise": ("fp8-row",), "float8 tensorwise": ("fp8-tensor",)}
    precision = case.text("precision").replace("bf16+float8", "float8 tensorwise")
    if precision not in passes:
        raise CannotBuildError(f"precision: {precision}")
    plan = _plan(case, passes[precision])
    if plan.pipeline > 1:
        plan = _with_pipeline(plan, case)
    return TrainerRun("torchtitan", _name(case), plan, (ASYNC,) if "async" in said else ())


def _with_pipeline(plan: Plan, case: Case) -> Plan:
    """As many micro-batches as stages, torchtitan's default in 2024, where the row does not say the micro-batch."""
    local = re.search(r"local_batch=(\d+)", case.text("other"))
    if local is None and not case.text("micro_batch"):
        raise CannotBuildError("batch: neither a micro-batch nor a local batch is given")
    micro = case.count("micro_batch", 0) or max(1, int(local[1]) // plan.pipeline if local else 1)
    return msgspec.structs.replace(plan, micro_batch=micro, virtual=2 if "Interleaved" in case.text("other") else 1)


def _automodel(case: Case) -> TrainerRun:
    """AutoModel's FSDP2 of bf16 weights; its dense models with tensor or context parallelism are torchtitan's here."""
    if case.count("ep", 1) > 1 or "OSS" in case.text("model"):
        raise CannotBuildError(
            "experts: Transformer Engine's kernels and DeepEP, which neither torchtitan nor accelerate runs"
        )
    lora = "[lora]" in case.text("model").lower()
    plan = _plan(case, (), recompute="none" if case.count("n_gpus", 1) == 1 else "full")
    if lora and plan.tensor * plan.pipeline > 1:
        raise CannotBuildError("adapters: LoRA with tensor or pipeline parallelism")
    if lora:
        return TrainerRun("hf", _name(case), plan, _lora(16))
    return TrainerRun("torchtitan" if plan.tensor * plan.context * plan.pipeline > 1 else "hf", _name(case), plan)


def _torchtune(case: Case) -> TrainerRun:
    """torchtune's LoRA is PEFT's here, its full fine-tuning FSDP2 of fp32 weights."""
    said = f"{case.text('model')} {case.text('other')}".lower()
    if "qlora" in said and case.count("n_gpus", 1) > 1:
        raise CannotBuildError("precision: weights in four bits that are sharded")
    if "offload" in said:
        raise CannotBuildError("offload: parameters in host memory")
    plan = _plan(case, ())
    data_style = "ddp" if case.count("n_gpus", 1) == 1 else "fsdp2"
    plan = msgspec.structs.replace(plan, data_style=data_style)
    rank = 16 if "70b" in said else 8
    quantised = ("--load_in_4bit", "--use_bnb_nested_quant") if "qlora" in said else ()
    adapters = (*_lora(rank), *quantised) if "lora" in said else ()
    return TrainerRun("hf", _name(case), plan, adapters, memory_alone=not case.text("step_time_s"))


def _litgpt(case: Case) -> TrainerRun:
    """litgpt's LoRA of bf16 weights, of queries and values alone; the lengths of most samples are not given."""
    method = re.search(r"\[(.+)\]", case.text("model"))
    if method is None or method[1] != "lora":
        raise CannotBuildError("adapters: litgpt's own adapters, not LoRA")
    quantised = re.search(r"bnb\.nf4(-dq)?", case.text("precision"))
    several = case.count("n_gpus", 1) > 1
    if quantised and several:
        raise CannotBuildError("precision: weights in four bits that are sharded")
    words = ("--load_in_4bit", *(("--use_bnb_nested_quant",) if quantised[1] else ())) if quantised else ()
    model = _phi(case) if "phi-1.5" in case.text("model") else _name(case)
    plan = msgspec.structs.replace(_plan(case, (), recompute="none"), data_style="fsdp2" if several else "ddp")
    targets = ("--lora_r", "8", "--lora_target_modules", "q_proj", "v_proj")
    return TrainerRun("hf", model, plan, (*targets, *words), memory_alone=True)


def _phi(case: Case) -> Mapping[str, Any]:
    return {
        "model_type": "phi",
        "architectures": ["PhiForCausalLM"],
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "vocab_size": 51200,
        "max_position_embeddings": 2048,
        "partial_rotary_factor": 0.5,
    }


def _llm_foundry(case: Case) -> TrainerRun:
    """MPT by GPT-2's layers with GELU and no dropout: transformers' MPT has no fused attention."""
    shapes = decoder_shapes(case)
    if shapes["ffn"] != 4 * shapes["hidden"]:
        raise CannotBuildError("model: MPT's feed-forward layer is four times as wide as the model")
    if "fp8" in case.precision():
        raise CannotBuildError("precision: FP8 by Transformer Engine's layers, delayed scaling")
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": shapes["hidden"],
        "n_head": shapes["heads"],
        "n_layer": shapes["layers"],
        "n_positions": case.count("seq_len"),
        "vocab_size": shapes["vocab"],
        "activation_function": "gelu",
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
        "tie_word_embeddings": True,
    }
    sharded = "SHARD_GRAD_OP" not in case.text("sharding")
    plan = msgspec.structs.replace(
        _plan(case, ()), reshard=sharded, attention="flash" if "flash" in case.text("other") else "auto"
    )
    # Composer reduces the gradients of every micro-batch
    summed = plan.micro_batches(case.count("n_gpus", 1)) > 1
    return TrainerRun("hf", config, plan, ("--sync_each_batch",) if summed else ())


def _single(case: Case) -> TrainerRun:
    raise CannotBuildError(f"precision: {case.text('precision')}")


def _plan(case: Case, passes: tuple[str, ...], recompute: str | None = None) -> Plan:
    """The plan in a row's columns; ``recompute``: where the row leaves it to a recipe."""
    tensor, context, pipeline = (case.count(column, 1) for column in ("tp", "cp", "pp"))
    replicas = case.count("n_gpus", 1) // (tensor * context * pipeline)
    is_piped = pipeline > 1
    said = case.text("act_ckpt").lower()
    kept = recompute if recompute and (not said or said.startswith((*_RECIPES, "not "))) else _kept(case, said)
    micro_batch = case.count("micro_batch", 1)
    micro_batches = 1 if is_piped else accumulation(case, replicas)
    compiled = ("fuse-pointwise",) if case.is_on("compile") and case.text("framework").startswith("torchtitan") else ()
    selective = ("recompute-selective",) if kept == "selective" else ()
    return Plan(
        sequence=case.count("seq_len"),
        micro_batch=micro_batch,
        global_batch=case.count("global_batch") if is_piped else micro_batch * micro_batches * replicas,
        tensor=tensor,
        sequence_parallel=tensor > 1,
        context=context,
        pipeline=pipeline,
        recompute="full" if kept == "full" else "none",
        passes=(*passes, *compiled, *selective),
    )


def _kept(case: Case, said: str) -> str:
    if said.startswith(_RECIPES):
        return "full"  # as most recipes of these frameworks
    return checkpointing(case) if said else "none"


def _name(case: Case) -> str:
    name = _NAMED.get(plain_name(case))
    if name is None:
        raise CannotBuildError(f"model: no named model {case.text('model')}")
    return name


def _lora(rank: int) -> tuple[str, ...]:
    return ("--lora_r", str(rank), "--lora_target_modules", "all-linear")


_READERS: Mapping[str, Callable[[Case], TrainerRun]] = {  # how the framework's cell begins
    "torchtitan": _torchtitan,
    "nemo automodel": _automodel,
    "torchtune": _torchtune,
    "litgpt": _litgpt,
    "llm-foundry": _llm_foundry,
    "hf ": _single,
}
