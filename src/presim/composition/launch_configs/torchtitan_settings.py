"""torchtitan's TOML files, of all its releases, as a model with a plan.

What a file does not say is as torchtitan's `JobConfig` has it. presim captures torchtitan 0.3.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from presim.composition.graph.take import config_file
from presim.composition.launch_configs.plan_of_launch import LaunchedPlan
from presim.composition.launch_configs.settings import Settings
from presim.errors import InputError
from presim.system.files import decode_json, read_bytes

_MODELS = {
    ("llama3", "8b"): "llama3-8b", ("llama3", "70b"): "llama3-70b", ("llama3", "405b"): "llama3-405b",
    ("llama3", "1b"): "llama3-1b", ("llama3", "3b"): "llama3-3b", ("llama2", "7b"): "llama2-7b",
    ("llama2", "13b"): "llama2-13b", ("llama2", "70b"): "llama2-70b", ("qwen3", "0.6b"): "qwen3-0.6b",
    ("qwen3", "8b"): "qwen3-8b", ("qwen3", "32b"): "qwen3-32b", ("deepseek_v3", "671b"): "deepseek-v3",
    ("qwen3", "30b-a3b"): "qwen3-30b-a3b", ("qwen3", "235b-a22b"): "qwen3-235b-a22b",
    ("qwen3", "1.7b"): "qwen3-1.7b", ("qwen3", "4b"): "qwen3-4b", ("qwen3", "14b"): "qwen3-14b",
    ("gpt_oss", "20b"): "gpt-oss-20b", ("gpt_oss", "120b"): "gpt-oss-120b",
}  # fmt: skip
_SCHEDULES = {
    "1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "interleavedzerobubble": "zero-bubble",
    "dualpipev": "dualpipev",
}  # fmt: skip
_FP8 = {"tensorwise": "fp8-tensor", "rowwise": "fp8-row"}  # torchao's recipe -> pass
_SECTIONS = ("parallelism", "training", "experimental")  # that had degrees, by release
_REFUSED = {
    "optimizer.early_step_in_backward": "updates within the backward pass are not composed; set it to false",
    "training.enable_cpu_offload": "parameters in host memory are not composed; run torchtitan under `presim run`",
    "parallelism.enable_fsdp_symm_mem": "symmetric memory of FSDP is not composed; run torchtitan under `presim run`",
    "parallelism.module_fqns_per_model_part": "give --stages, the number of layers of each stage, and leave it out",
    "parallelism.pipeline_parallel_split_points": "give --stages, the number of layers of each stage, and leave it out",
    "experimental.pipeline_parallel_split_points": "give --stages, the number of layers of each stage",
    "parallelism.pipeline_parallel_schedule_csv": "a schedule of a file is not composed; give --rank-passes",
    "fault_tolerance.enable": "its replicas are not composed; run torchtitan under `presim run`",
}
_NO_EFFECT = (
    *("hf_assets_path", "job.*", "profiling.*"),
    *("metrics.*", "checkpoint.*", "validation.*", "validator.*", "lr_scheduler.*", "comm.*"),
    *("dataset.*", "data.*", "optimizer.*", "training.steps", "training.dataset*", "training.seed", "debug.*"),
    *("training.warmup_steps", "training.gc_*", "training.deterministic", "model.tokenizer*", "model.hf_assets_path"),
    *("model.norm_type", "model.flavor", "model.name", "model.print*", "training.mixed_precision_param", "profiler.*"),
    *("training.data_parallel_type", "parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree"),
    *("training.data_parallel_degree", "training.enable_loss_parallel", "*.enable_fsdp_float8_all_gather"),
    *("*.precompute_float8*", "*.filter_fqns", "float8.emulate", "float8.scaling_type*", "model.tok*", "dataloader.*"),
    *("parallelism.enable_compiled_autograd", "experimental.enable_compiled_autograd", "float8.recipe_name"),
    *("parallelism.context_parallel_load_balancer", "parallelism.spmd_backend", "experimental.custom*"),
    *("fault_tolerance.*", "memory_estimation.*", "activation_checkpoint.*", "quantize.*", "tokenizer.*", "compile.*"),
)  # fmt: skip


def torchtitan_plan(
    values: Mapping[str, Any], origin: str, model: str | None, named_fields: Collection[str]
) -> LaunchedPlan:
    """The plan of a file's sections.

    ``model``: the user's, in place of its own. ``named_fields``: of the plan, by options, which are not looked for.

    Raises:
        InputError: presim's program for torchtitan cannot run it, or it says too little.
    """
    settings = Settings(values, origin)
    overridden = [name for name in _REFUSED if "--stages" in _REFUSED[name] and "stages" in named_fields]
    settings.refuse(_REFUSED, overridden)
    model, notes = (model, []) if model else _model(settings)
    pipeline = _degree(settings, "pipeline_parallel_degree")
    fields: dict[str, Any] = {"sequence": settings.number("training.seq_len") or 2048}
    fields |= _parallelism(settings, pipeline)
    copies = _degree(settings, "data_parallel_replicate_degree")
    shards = _degree(settings, "data_parallel_shard_degree", absent=-1)
    _check_trainer(settings)
    if copies > 1:
        fields["data_style"] = "ddp" if shards == 1 else "hsdp"
    if pipeline > 1 and "stages" not in named_fields:
        fields |= _stages(settings, model, pipeline, str(fields["schedule"]))
    fields["micro_batch"], batches = _batches(settings, pipeline)
    global_batch = settings.number("training.global_batch_size") or -1
    if global_batch > 0:
        fields["global_batch"] = global_batch
    norm = settings.value("training.max_norm")
    fields["clip"] = norm is None or 0 < float(str(norm)) < math.inf
    degrees = copies * fields["tensor"] * fields["context"] * pipeline
    world_size = shards * degrees if shards > 0 else None
    layer_fields, precision = _layers(settings, pipeline, named_fields)
    fields |= layer_fields
    overrides = _overrides(settings)
    notes += [*_differences(settings), *settings.unread_note(_NO_EFFECT)]
    return LaunchedPlan(
        model, fields, precision, tuple(overrides), None, None, tuple(notes), "torchtitan", world_size,
        None if global_batch > 0 else batches, copies if fields.get("data_style") == "hsdp" else 1,
    )  # fmt: skip


def _layers(settings: Settings, pipeline: int, named_fields: Collection[str]) -> tuple[dict[str, Any], str]:
    """Fields of how layers run, and their precision."""
    passes, precision = _numbers(settings, named_fields)
    fields: dict[str, Any] = {}
    if settings.switch("training.replays_graphs") and pipeline == 1:
        fields["cuda_graphs"] = True
    if "recompute" not in named_fields:
        checkpointing = _recomputation(settings)
        passes += [checkpointing] if checkpointing == "recompute-selective" else []
        fields["recompute"] = "full" if checkpointing == "full" else "none"
    if passes:
        fields["passes"] = tuple(passes)
    return fields, precision


def _differences(settings: Settings) -> list[str]:
    """What presim's program does otherwise."""
    notes = []
    if _word(settings, "mixed_precision_reduce") == "bfloat16":
        notes.append("Gradients are reduced in fp32, as torchtitan 0.3 does, and not in bf16 as the launch says.")
    if settings.switch("loss.is_chunked"):
        notes.append(
            "The loss is computed in one piece, and not in chunks as the launch says: memory is an upper bound."
        )
    return notes


def _word(settings: Settings, name: str) -> str | None:
    return settings.text(*(f"{section}.{name}" for section in _SECTIONS))


def _degree(settings: Settings, name: str, absent: int = 1) -> int:
    number = settings.number(*(f"{section}.{name}" for section in _SECTIONS))
    return absent if number is None else number


def _model(settings: Settings) -> tuple[str, list[str]]:
    name, flavor = settings.text("model.name") or "llama3", settings.text("model.flavor") or ""
    if (model := _MODELS.get((name.lower(), flavor.lower()))) is None:
        raise InputError(
            f"{settings.origin} trains {name} {flavor or 'without a flavor'}, whose sizes are in torchtitan's code: "
            "name MODEL before --from"
        )
    return model, [f"The launch's model {name} {flavor} has the sizes of {model}."]


def _parallelism(settings: Settings, pipeline: int) -> dict[str, Any]:
    tensor, context = _degree(settings, "tensor_parallel_degree"), _degree(settings, "context_parallel_degree")
    expert = _degree(settings, "expert_parallel_degree")
    fields: dict[str, Any] = {"tensor": tensor, "context": context, "pipeline": pipeline}
    if expert > 1:
        fields["expert"] = expert
    has_sequence = settings.switch("parallelism.enable_sequence_parallel", default=True)
    fields["sequence_parallel"] = tensor > 1 and has_sequence
    reshard = _word(settings, "fsdp_reshard_after_forward") or "default"
    fields["reshard"] = reshard == "always" or (reshard == "default" and pipeline == 1)
    rotation = _word(settings, "context_parallel_rotate_method") or "allgather"
    if context > 1 and rotation != "allgather":
        raise InputError(
            f"{settings.origin} has context_parallel_rotate_method {rotation}; torchtitan 0.3 gathers: use allgather"
        )
    if pipeline > 1:
        schedule = (_word(settings, "pipeline_parallel_schedule") or "1F1B").lower()
        if schedule not in _SCHEDULES:
            raise InputError(
                f"{settings.origin} has pipeline_parallel_schedule {schedule}; presim's program for torchtitan has "
                f"{', '.join(_SCHEDULES)}"
            )
        fields["schedule"] = _SCHEDULES[schedule]
    return fields


def _batches(settings: Settings, pipeline: int) -> tuple[int, int]:
    """Samples of a micro-batch, and the number of these in a local batch: several in a pipeline."""
    local = settings.number("training.local_batch_size", "training.batch_size") or 8
    if pipeline == 1:
        return local, 1
    names = [f"{section}.pipeline_parallel_microbatches" for section in _SECTIONS]
    size = _degree(settings, "pipeline_parallel_microbatch_size", absent=0)
    number = settings.number(*names)
    size = size or (max(1, local // number) if number else 1)
    if local % size:
        raise InputError(
            f"{settings.origin} has a local batch of {local}, no multiple of its micro-batches of {size}; change one"
        )
    return size, local // size


def _stages(settings: Settings, model: str, pipeline: int, schedule: str) -> dict[str, Any]:
    """Layers of each stage, where torchtitan makes the first and the last shorter by one.

    Source: `_generate_llm_fqn_per_model_part`, torchtitan/distributed/pipeline_parallel.py.

    Raises:
        InputError: torchtitan refuses the number of stages.
    """
    path = config_file(model)
    layers = decode_json(read_bytes(path, "name another model"), dict[str, Any])["num_hidden_layers"] if path else 0
    first = _degree(settings, "pipeline_parallel_first_stage_less_layers")
    last = _degree(settings, "pipeline_parallel_last_stage_less_layers")
    per_stage = _degree(settings, "pipeline_parallel_layers_per_stage", absent=0)
    is_single = schedule in ("1f1b", "gpipe")
    number = math.ceil((layers + first + last) / per_stage) if per_stage else pipeline * (1 if is_single else 2)
    if number % pipeline or (number == pipeline) is not is_single:
        raise InputError(
            f"{settings.origin} has {layers} layers in stages of {per_stage}: {number} stages on {pipeline} ranks, "
            f"which {schedule} does not take; change pipeline_parallel_layers_per_stage"
        )
    size, remainder = divmod(layers + first + last, number)
    stages = [size + (index < remainder) for index in range(number)]
    stages[0] -= first
    stages[-1] -= last
    fields: dict[str, Any] = {"stages": tuple(stages)}
    return fields | ({"virtual": number // pipeline} if number > pipeline else {})


def _numbers(settings: Settings, named_fields: Collection[str]) -> tuple[list[str], str]:
    """Passes and a precision of quantised layers.

    Raises:
        InputError: torchtitan 0.3 has no such layers.
    """
    converters = settings.value("model.converters") or []
    names = converters.replace(",", " ").split() if isinstance(converters, str) else [str(name) for name in converters]
    is_float8 = any("float8" in name for name in names) or settings.switch(
        "float8.enable_float8_linear", "training.enable_float8_linear", "training.enable_fp8_linear"
    )
    recipe = (
        settings.text("float8.recipe_name", "model.recipe_name", "quantize.linear.float8.recipe_name") or "tensorwise"
    )
    if "passes" in named_fields:
        return [], "bf16"
    if is_float8 and recipe not in _FP8:
        raise InputError(
            f"{settings.origin} scales FP8 {recipe}, and presim's program for torchtitan has {' and '.join(_FP8)}: use "
            "one of them"
        )
    known_names = ("float8", "mx", "mxfp8", "nvfp4")
    if unread_names := [name for name in names if not any(part in name for part in known_names)]:
        raise InputError(
            f"{settings.origin} has the converter {unread_names[0]}, which presim does not read; leave it out"
        )
    precision = "mxfp8" if any("mx" in name for name in names) else "bf16"
    precision = "nvfp4" if any("nvfp4" in name for name in names) else precision
    return ([_FP8[recipe]] if is_float8 else []), precision


def _recomputation(settings: Settings) -> str:
    """``none``, ``full`` or the pass of selective recomputation.

    Raises:
        InputError: torchtitan 0.3 does not choose in this way.
    """
    mode = (settings.text("activation_checkpoint.mode") or "selective").lower()
    if mode in ("none", "full"):
        return mode
    option = settings.text("activation_checkpoint.selective_ac_option") or "2"
    if mode == "selective" and option == "op":
        return "recompute-selective"
    shown = f"{mode} with selective_ac_option {option}" if mode == "selective" else mode
    raise InputError(
        f"{settings.origin} recomputes activations by mode {shown}, which torchtitan 0.3 does not have: give "
        "--recompute full or none, or selective_ac_option = 'op'"
    )


def _check_trainer(settings: Settings) -> None:
    kind, products = _word(settings, "data_parallel_type") or "fsdp", _word(settings, "mixed_precision_param")
    if kind != "fsdp" or products == "float32":
        raise InputError(
            f"{settings.origin} trains by {kind} with products in {products or 'bfloat16'}; presim's program for "
            "torchtitan has fsdp with bfloat16"
        )
    name = settings.text("optimizer.name") or "AdamW"
    if name.lower() not in ("adamw", "adam"):
        raise InputError(f"{settings.origin} has the optimizer {name}; presim's program for torchtitan has AdamW alone")


def _overrides(settings: Settings) -> list[str]:
    """Options of torchtitan 0.3's trainer that no plan has."""
    compiles = settings.switch("compile.enable", "training.compile")
    components = settings.value("compile.components")
    options = ["--compile.enable"] if compiles else []
    if compiles and components and sorted(components) != ["loss", "model"]:
        options += ["--compile.components", *map(str, components)]
    names = [f"{section}.enable_async_tensor_parallel" for section in (*_SECTIONS, "compile")]
    if settings.switch(*names):
        options.append("--compile.enable_async_tensor_parallel")
    if settings.text("training.dtype") == "bfloat16":
        options += ["--training.dtype", "bfloat16"]
    return options
