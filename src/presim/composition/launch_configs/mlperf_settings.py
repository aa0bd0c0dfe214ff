"""Variables of NVIDIA's MLPerf submissions (``config_DGX….sh``, for NeMo) as a model with a plan.

A rank's share of a step is ``MINIBS`` samples: ``config_…_128x4x72xtp2pp8cp2`` has 128 nodes of four GPUs and 72.
Lengths of samples are those of the benchmarks' rules (MLCommons, training_policies).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_configs.settings import Settings
from presim.errors import InputError

_MODELS = {"8b": "llama3-8b", "405b": "llama3-405b"}
_BENCHMARKS = {  # a word of the path -> model, tokens of a sample
    "llama2_70b_lora": ("llama2-70b", 8192), "llama31_405b": ("llama3-405b", 8192), "llama31_8b": ("llama3-8b", 8192),
    "llama3_8b": ("llama3-8b", 8192), "gpt3": ("gpt3-175b", 2048), "large_language_model": ("gpt3-175b", 2048),
}  # fmt: skip
_RECIPES = {"delayed": "fp8-delayed", "tensorwise": "fp8-current", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
_LORA = ("peft=lora", "peft.dim=16", "peft.alpha=32", "peft.target_modules=[linear_qkv,linear_proj]")
_GRAPH = ("model.cuda_graph_impl=local", "model.cuda_graph_scope=[full_iteration]")
_OFF = ("0", "false", "none", "null", "")
_STEP = (  # variables of a step that are not taken
    *("LAYER_CUDA_GRAPH", "USE_TE_OPS", "FUSED_QKV_ROPE", "FP8_ACT", "CE_FUSION_IMPL"),
    *("DEFER_EMBEDDING_WGRAD_COMPUTE", "OVERLAP_PARAM_GATHER_WITH_OPTIM_STEP", "TP_PP_DP_MAPPING", "BUCKET_SIZE"),
    *("CG_WEIGHT_CACHING", "FP8_PARAMS", "NVTE_DPA_FP8_RECIPE", "CPU_OFFLOADING"),
)


def is_mlperf(variables: Collection[str]) -> bool:
    """Whether a script's variables are those of such a submission."""
    return "DGXNNODES" in variables and bool({"TENSOR_MODEL_PARALLEL", "TP"} & set(variables))


def mlperf_plan(values: Mapping[str, Any], path: str, origin: str, model: str | None) -> LaunchedPlan:
    """The plan of a script's variables. ``path``: its full path, which names the benchmark.

    Raises:
        InputError: they say too little, or name what presim lacks.
    """
    settings = Settings(values, origin)
    benchmark = next((name for name in _BENCHMARKS if name in path.replace("-", "_")), None)
    size = (settings.text("MODEL_SIZE") or "").lower()
    is_lora = benchmark == "llama2_70b_lora" or settings.switch("LORA")
    named_model, sequence = _BENCHMARKS.get(benchmark or "", (None, None))
    named_model = _MODELS.get(size, named_model)
    sequence = sequence or (8192 if named_model else None)
    if model is None and named_model is None:
        raise InputError(f"{origin} has no MODEL_SIZE, and its path names no benchmark; name MODEL before --from")
    layers = settings.number("OVERWRITTEN_NUM_LAYERS")
    if model is None and layers not in (None, {"llama3-8b": 32, "llama3-405b": 126}.get(named_model or "")):
        raise InputError(f"{origin} has OVERWRITTEN_NUM_LAYERS = {layers}; name a config with as many before --from")
    fields = _fields(settings)
    if sequence is not None:
        fields["sequence"] = sequence
    nodes, per_node = settings.number("DGXNNODES"), settings.number("DGXNGPU") or 8
    samples = settings.number("MINIBS")
    if samples is None or samples % fields["micro_batch"]:
        raise InputError(
            f"{origin} has MINIBS = {samples}, no multiple of the {fields['micro_batch']} samples of a micro-batch"
        )
    precision, overrides = _precision(settings), _overrides(settings)
    notes = [f"The launch's benchmark is {named_model or 'unnamed'} with {sequence} tokens in a sample."]
    if is_lora:
        overrides += _LORA
        if precision == "nvfp4":  # frozen weights are in what they compute in
            overrides.append("model.fp4_param=true")
        notes.append("Adapters are those of the benchmark's rules: rank 16, of the projections of attention.")
    if settings.switch("MCORE_CUDA_GRAPH"):
        overrides += _GRAPH
        notes.append("Graphs of the launch (MCORE_CUDA_GRAPH) are taken as one of the iteration.")
    ignored_names = [name for name in _STEP if (settings.text(name) or "0").lower() not in _OFF]
    if ignored_names:
        notes.append(f"Variables that change a step, and are left out: {', '.join(ignored_names)}.")
    return LaunchedPlan(
        model or str(named_model), fields, precision, tuple(overrides), nodes, per_node, tuple(notes), "megatron", None,
        samples // fields["micro_batch"],
    )  # fmt: skip


def _fields(settings: Settings) -> dict[str, Any]:
    degrees = {
        "tensor": ("TENSOR_MODEL_PARALLEL", "TP"), "pipeline": ("PIPELINE_MODEL_PARALLEL", "PP"),
        "context": ("CONTEXT_PARALLEL", "CP"), "virtual": ("INTERLEAVED_PIPELINE", "VP"),
    }  # fmt: skip
    fields: dict[str, Any] = {}
    for field, names in degrees.items():
        value = settings.text(*names)
        number = 1 if value is None or value.lower() in ("null", "none", "") else settings.number(*names)
        fields[field] = max(1, number or 1)
    if fields["pipeline"] == 1:
        fields["virtual"] = 1
    if fields["context"] > 1:
        fields["context_style"] = "ring"  # Transformer Engine's, with messages between neighbours
    fields["micro_batch"] = settings.number("MICRO_BATCH_SIZE", "MBS") or 1
    fields["sequence_parallel"] = fields["tensor"] > 1 and settings.switch("SEQ_PARALLEL", "SP", default=True)
    fields["data_style"] = "zero1" if settings.switch("USE_DIST_OPTIMIZER", default=True) else "ddp"
    fields["overlap"] = settings.switch("OVERLAP_GRAD_REDUCE", default=True)
    return fields


def _precision(settings: Settings) -> str:
    if settings.switch("FP4"):
        return "nvfp4"
    if not settings.switch("FP8"):
        return "bf16"
    recipe = settings.text("FP8_RECIPE") or "delayed"
    if recipe not in _RECIPES:
        raise InputError(f"{settings.origin} has FP8_RECIPE {recipe}; presim has {', '.join(_RECIPES)}")
    return _RECIPES[recipe]


def _overrides(settings: Settings) -> list[str]:
    overrides = []
    if settings.switch("ASYM_PP_EMBED"):
        overrides.append("model.account_for_embedding_in_pipeline_split=true")
    if settings.switch("ASYM_PP_LOSS"):
        overrides.append("model.account_for_loss_in_pipeline_split=true")
    if settings.text("TP_COMM_OVERLAP") is not None and not settings.switch("TP_COMM_OVERLAP"):
        overrides.append("model.tp_comm_overlap=false")
    if (settings.switch("FP8") or settings.switch("FP4")) and settings.switch("FP8_DPA"):
        overrides.append("mixed_precision.fp8_dot_product_attention=true")
    if settings.switch("FP8") and not settings.switch("FP4") and settings.text("FP8_PARAM_GATHER") is not None:
        value = str(settings.switch("FP8_PARAM_GATHER")).lower()
        overrides.append(f"mixed_precision.fp8_param_gather={value}")
    return overrides
