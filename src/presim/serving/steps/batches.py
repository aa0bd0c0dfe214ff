"""Which batches of an engine are captured, which of them are held out, and how the engine is started for it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from presim.errors import InputError
from presim.hardware import Gpu
from presim.serving.model_lookup import Experts, Model
from presim.serving.serving_plan import VLLM_CACHES, ServingPlan

_BLACKWELL = 10  # compute capability
_WITHOUT_COMPILERS = {
    "attention_config": {"flash_attn_version": 2},
    "kernel_config": {"enable_jit_warmup": False, "enable_cutedsl_warmup": False},
}
REPEATS = 4  # steps of each batch
_CONTEXT = 256  # tokens of a decode; attention is priced from the true contexts, so that few tokens suffice
_MOST_SEQUENCES = 1024
_SMALL_PROMPTS = (32, 128)
_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}
_EXPERT_COUNTS = ("n_routed_experts", "num_local_experts", "num_experts")  # in configs of these architectures
# Keys that vLLM reads and that the built-in shapes lack, because they do not change what a step takes: as published.
_REQUIRED: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "deepseek_v3": {
        "n_group": 8,
        "topk_group": 4,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "hidden_act": "silu",
        "moe_layer_freq": 1,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000,
    },
}
# By weights, as vLLM reads it from a checkpoint's config; `--weights fp8` is an argument instead
_QUANTISATION: dict[str, dict[str, Any]] = {
    "fp8-block": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "weight_block_size": [128, 128],
    },
    "int4": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "desc_act": False,
        "sym": True,
        "lm_head": False,
        "dynamic": {r"-:.*\.gate$": {}},  # routers stay in 16 bits
    },
    "fp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head", "*.gate"]},
}
_WEIGHTS = ("bf16", "fp8", *_QUANTISATION)
_GPT_OSS = ("bf16", "mxfp4")  # weights, and those of experts


@dataclasses.dataclass(frozen=True)
class StepBatch:
    """What one step processes."""

    decodes: tuple[int, ...] = ()  # context of each
    prefills: tuple[int, ...] = ()  # tokens of each prompt, whole
    held_out: bool = False  # not fitted, but compared with what is interpolated

    @property
    def text(self) -> str:
        """In a few words."""
        parts = [f"{len(self.decodes):,} decodes of {self.decodes[0]:,}"] if self.decodes else []
        parts += [f"{len(self.prefills)} prompt{'s' * (len(self.prefills) > 1)} of {self.prefills[0]:,}"] * bool(
            self.prefills
        )
        return " + ".join(parts)


def batches(plan: ServingPlan, longest: int, kv_tokens: int) -> list[StepBatch]:
    """Decodes by powers of two, prompts from there on and two small ones; between and beside them, held out.

    ``longest``: tokens of a request at most; ``kv_tokens``: room for keys and values.
    """
    if plan.max_num_seqs > _MOST_SEQUENCES:
        raise InputError(
            f"steps are captured with at most {_MOST_SEQUENCES:,} sequences, and --max-num-seqs is "
            f"{plan.max_num_seqs:,}; lower it, or leave --steps at composed"
        )
    max_sequences, budget, context = plan.max_num_seqs, plan.max_num_batched_tokens, min(_CONTEXT, longest // 2)
    sizes = sorted({*(1 << power for power in range(11) if 1 << power <= max_sequences), max_sequences})
    fitted = [StepBatch((context,) * size) for size in sizes]
    prompts = sorted({*(1 << power for power in range(5, 18) if max_sequences < 1 << power < budget), budget})
    small = [
        tokens for tokens in _SMALL_PROMPTS if tokens <= min(max_sequences, budget)
    ]  # they launch more than decodes do
    fitted += [_prompt(tokens, longest) for tokens in (*small, *prompts) if tokens in small or tokens > max_sequences]
    between = [size for size in (3, 6, 12, 24, 48, 96, 192, 384, 768) if size < max_sequences]
    held_out = [StepBatch((context,) * size, held_out=True) for size in between]
    held_out += [
        StepBatch((min(4096, longest // 2),) * size, held_out=True) for size in (8, 32) if size <= max_sequences
    ]
    held_out += [
        dataclasses.replace(_prompt(tokens, longest), held_out=True)
        for tokens in (64, 192, 384, 768, 1536, 3072, 6144, 12288)
        if tokens < budget
    ]
    mixed = [(16, 448), (64, 960), (64, 1984)]
    held_out += [
        StepBatch((context,) * size, (tokens,), held_out=True)
        for size, tokens in mixed
        if size <= max_sequences - 1 and size + tokens <= budget and tokens < longest
    ]
    return [batch for batch in fitted + held_out if _tokens(batch) <= 0.9 * kv_tokens]


def _prompt(tokens: int, longest: int) -> StepBatch:
    """Tokens of as few prompts as may be."""
    count = -(-tokens // (longest - 1))
    return StepBatch(prefills=(tokens // count,) * count)


def _tokens(batch: StepBatch) -> int:
    return sum(batch.decodes) + 16 * len(batch.decodes) + sum(batch.prefills)


def config_for_vllm(config: dict[str, Any], model: Model, plan: ServingPlan) -> dict[str, Any]:
    """A model's config with the architecture that vLLM looks for, and with the quantisation of its checkpoint.

    Of a pipeline it has the layers of the longest stage, as a model of its own; of data-parallel ranks that share
    experts, those of one rank.

    Raises:
        InputError: the architecture is not known, or a rank has fewer experts than a token chooses.
    """
    weights, stages = plan.weights, plan.pp
    fields = {key: value for key, value in config.items() if key != "quantization_config"}
    if plan.dp > 1 and model.experts is not None:
        fields = _of_rank(fields, model.experts, plan.dp)
    if stages > 1:
        fields = _stage(fields, model, stages)
    if (weights, plan.of_experts) == _GPT_OSS:
        fields["quantization_config"] = {"quant_method": "mxfp4"}
    if weights in _QUANTISATION:
        fields["quantization_config"] = _QUANTISATION[weights]
    if "architectures" in config:
        return fields
    kind = str(config.get("model_type"))
    if kind not in _ARCHITECTURES:
        raise InputError(
            f"steps of {model.name} cannot be captured: no architecture is known for its model type {kind!r}; name a "
            "config.json that has `architectures`, or leave --steps at composed"
        )
    return {"architectures": [_ARCHITECTURES[kind]], "torch_dtype": "bfloat16", **_REQUIRED.get(kind, {}), **fields}


def experts_of(config: dict[str, Any]) -> Experts | None:
    """How many experts a captured config has, and of how many a token takes; its sizes are not told."""
    count = next((config[key] for key in _EXPERT_COUNTS if config.get(key)), 0)
    return Experts(count, config["num_experts_per_tok"], 1, 1) if count else None


def _of_rank(config: dict[str, Any], of: Experts, ranks: int) -> dict[str, Any]:
    """The config with as many experts as one data-parallel rank has, of which each token chooses as many as before."""
    rank_experts = of.count // ranks
    if rank_experts < of.chosen or of.count % ranks:
        raise InputError(
            f"no steps are captured of {of.count} experts over --dp {ranks}: a rank has {of.count / ranks:g}, and a "
            f"token chooses {of.chosen}; leave --steps at composed"
        )
    counts: dict[str, Any] = {key: rank_experts for key in _EXPERT_COUNTS if key in config}
    published = {**_REQUIRED.get(str(config.get("model_type")), {}), **config}
    groups = math.gcd(rank_experts, int(published.get("n_group") or 1))
    among: dict[str, Any] = {"n_group": groups, "topk_group": groups} if "n_group" in published else {}
    return {**config, **counts, **among}


def _stage(config: dict[str, Any], model: Model, stages: int) -> dict[str, Any]:
    """The config of one stage: the last layers, as the first may be dense ones before experts."""
    count = math.ceil(model.layers / stages)
    of_layers = {key: value[-count:] for key, value in config.items() if key == "layer_types" and value}
    dense = {"first_k_dense_replace": 0} if "first_k_dense_replace" in config else {}
    return {**config, "num_hidden_layers": count, **of_layers, **dense}


def gpu_arguments(gpu: Gpu) -> dict[str, Any]:
    """Arguments that a GPU needs: kernels that are compiled for it when they are first called cannot run here.

    On Blackwell FlashAttention 2 stands in for version 4. Attention is priced apart, so this changes no time.
    """
    return _WITHOUT_COMPILERS if gpu.compute_major >= _BLACKWELL else {}


def arguments(plan: ServingPlan, longest: int, model: Model) -> dict[str, Any]:
    """Arguments of vLLM's `LLM` for one stage of one data-parallel rank of a plan.

    Raises:
        InputError: no steps are captured of this plan.
    """
    _check(plan, model)
    return {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "enforce_eager": not plan.cuda_graphs,
        "tensor_parallel_size": plan.tp,
        "gpu_memory_utilization": plan.gpu_memory_utilization,
        "max_num_seqs": plan.max_num_seqs,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        "max_model_len": longest,
        "block_size": plan.block_size,
        "enable_expert_parallel": plan.ep,
        "quantization": "fp8" if plan.weights == "fp8" else None,
        "kv_cache_dtype": VLLM_CACHES[plan.cache],
    }


def _check(plan: ServingPlan, model: Model) -> None:
    """Refuse plans of which no steps are captured."""
    shares = plan.dp > 1 and model.experts is not None
    lacks = {
        "--dp without --ep": shares and not plan.ep,
        "--dp and --pp": shares and plan.pp > 1,
        "--dcp": plan.dcp > 1,
        f"--weights {plan.weights}": plan.weights not in _WEIGHTS,
        f"--expert-weights {plan.of_experts}": (plan.weights, plan.of_experts) not in (_GPT_OSS, (plan.weights,) * 2),
        f"--kernels {plan.kernels}": plan.kernels != "vllm",
    }
    if unsupported := [name for name, is_asked in lacks.items() if is_asked]:
        raise InputError(f"no steps are captured with {' and '.join(unsupported)}; leave --steps at composed")
