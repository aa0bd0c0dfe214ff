"""Megatron-LM's arguments as fields of a plan, a precision, and fields of Megatron-Bridge's configuration."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Sequence
from typing import Any

from presim.composition.launch_scripts.megatron_arguments import Arguments
from presim.errors import InputError

_DEGREES = {
    "--tensor-model-parallel-size": "tensor", "--pipeline-model-parallel-size": "pipeline",
    "--context-parallel-size": "context", "--expert-model-parallel-size": "expert",
    "--micro-batch-size": "micro_batch", "--global-batch-size": "global_batch",
}  # fmt: skip
_STYLES = {"p2p": "ring", "a2a": "ulysses", "all_gather": "all-gather"}
_RECIPES = {"delayed": "fp8-delayed", "tensorwise": "fp8-current", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
_MODEL_VALUES = (  # fields of Bridge's model with an argument's own name and value
    *("--expert-tensor-parallel-size", "--moe-token-dispatcher-type", "--moe-flex-dispatcher-backend"),
    *("--moe-router-load-balancing-type", "--moe-aux-loss-coeff", "--cuda-graph-impl", "--cuda-graph-scope"),
    *("--cross-entropy-fusion-impl", "--moe-router-dtype", "--attention-backend", "--pipeline-model-parallel-layout"),
    *("--microbatch-group-size-per-virtual-pipeline-stage", "--moe-hybridep-num-sms", "--moe-z-loss-coeff"),
)
_MODEL_SWITCHES = (
    *("--moe-grouped-gemm", "--moe-permute-fusion", "--moe-router-fusion", "--moe-shared-expert-overlap"),
    *("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split", "--fp8-param-gather"),
    *("--moe-router-pre-softmax", "--moe-router-force-load-balancing"),
)
_RENAMED = {
    "--decoder-first-pipeline-num-layers": "model.num_layers_in_first_pipeline_stage",
    "--decoder-last-pipeline-num-layers": "model.num_layers_in_last_pipeline_stage",
    "--overlap-moe-expert-parallel-comm": "comm_overlap.overlap_moe_expert_parallel_comm",
    "--delay-wgrad-compute": "comm_overlap.delay_wgrad_compute",
    "--apply-layernorm-1p": "model.layernorm_zero_centered_gamma",
    "--clip-grad": "optimizer.clip_grad",
    "--use-precision-aware-optimizer": "optimizer.use_precision_aware_optimizer",
    "--ddp-bucket-size": "ddp.bucket_size",
}
_NOT_MODEL = {"--fp8-param-gather": "mixed_precision.fp8_param_gather"}
_WITHOUT_FUSION = {
    "--no-rope-fusion": "apply_rope_fusion",
    "--no-gradient-accumulation-fusion": "gradient_accumulation_fusion",
    "--no-masked-softmax-fusion": "masked_softmax_fusion",
    "--no-bias-swiglu-fusion": "bias_activation_fusion",
    "--no-bias-gelu-fusion": "bias_activation_fusion",
    "--no-bias-dropout-fusion": "bias_dropout_fusion",
}
_GROWING = ("--rampup-batch-size", "--step-batch-size-schedule")
_SCHEDULE = re.compile(r":(\d+)[\s'\"]*$")  # of --step-batch-size-schedule "0:16 2.4B:320"
_REFUSED = {
    "--use-megatron-fsdp": "Megatron-FSDP", "--use-torch-fsdp2": "PyTorch's FSDP2 within Megatron",
    "--optimizer-cpu-offload": "an optimizer on the CPU", "--cpu-offloading-num-layers": "offloaded activations",
    "--context-parallel-sizes": "hierarchical context parallelism",
    "--hierarchical-context-parallel-sizes": "hierarchical context parallelism",
    "--fine-grained-activation-offloading": "offloaded activations", "--load-quantized": "quantised weights",
    "--vision-model-type": "a vision encoder", "--language-model-type": "a vision encoder",
    "--zero-stage": "DeepSpeed within Megatron", "--deepspeed": "DeepSpeed within Megatron",
    "--num-distributed-optimizer-instances": "partial sharding of the optimizer",
}  # fmt: skip
_ONLY_VALUES = {  # options of which presim has one value, Megatron's default
    "--optimizer": "adam",
    "--transformer-impl": "transformer_engine",
}
_DROPOUTS = ("--attention-dropout", "--hidden-dropout")
_DROPOUT = 0.1  # Megatron's default of both
_NO_EFFECT = (  # data, logs, checkpoints, learning rates, seeds and values that change no time
    *("--*data-path", "--*data-args-path", "--data-cache-path", "--dataloader*", "--dataset*", "--mock-data"),
    *("--split*", "--*tokenizer*", "--vocab-file", "--vocab-extra*", "--extra-vocab-size"),
    *("--merge-file", "--num-workers", "--log*", "--no-log*", "--*checkpoint*", "--*ckpt*", "--save*", "--load*"),
    *("--no-load*", "--no-save*", "--lr*", "--min-lr*", "--seed", "--decoupled*", "--weight-decay*"),
    *("--adam*", "--init-method*", "--eval*", "--train-iters", "--train-samples", "--train-tokens"),
    *("--exit-*", "--tensorboard*", "--wandb*", "--profile*", "--distributed-backend"),
    *("--tiktoken*", "--distributed-timeout*", "--no-mmap*", "--no-create-attention*", "--manual-gc*"),
    *("--use-mcore-models", "--no-check-for-nan*", "--use-flash-attn"),
    *("--rotary-percent", "--rope-type", "--no-position-embedding"),
    *("--bf16", "--fp16", "--fp8-amax*", "--fp8-margin", "--fp8-interval", "--empty-unused*", "--async-save"),
    *("--timing*", "--moe-router-bias*", "--mtp-loss*", "--iteration", "--mscale*", "--rotary-s*"),
    *("--override-opt*", "--reset-position-ids", "--eod-mask-loss", "--master-addr", "--master-port", "--loss-scale"),
    *("--initial-loss-scale", "--loss-scale-window", "--hysteresis", "--norm-epsilon", "--beta-fast"),
    *("--beta-slow", "--kv-channels", "--max-padding-length", "--train-mode", "--dist-ckpt*", "--one-logger*"),
    *("--router-*", "--moe-router-topk", "--moe-router-num-groups", "--moe-router-group-topk"),
    *("--moe-router-score*", "--moe-router-topk-scaling*", "--moe-router-enable*"),
    *("--moe-layer-freq", "--rope-scaling*", "--use-rope-scaling", "--auto-detect*", "--enable-experimental"),
    *("--num-query-groups", "--num-experts", "--moe-per-layer-logging", "--start-weight*", "--end-weight*"),
    *("--attention-softmax-in-fp32", "--disable-bf16-reduced*", "--accumulate-allreduce-grads-in-fp32"),
    *("--te-rng-tracker", "--DDP-impl"),
)
_ALIKE = 0.9


def plan_fields(arguments: Arguments) -> dict[str, Any]:
    """Fields of a plan that the arguments set.

    Raises:
        InputError: a value is missing, or what it asks for is not simulated.
    """
    for name, kind in _REFUSED.items():
        if arguments.has(name):
            raise InputError(
                f"the launch has {name}: presim does not read {kind} from Megatron's arguments; leave it out"
            )
    for name, only_value in _ONLY_VALUES.items():
        if (value := arguments.text(name)) not in (None, only_value):
            raise InputError(f"the launch has {name} {value}: presim simulates {only_value} alone; leave it out")
    if arguments.number("--seq-length") is None:
        raise InputError("the launch lacks --seq-length, the tokens of a sample; give it with --seq")
    fields: dict[str, Any] = {"sequence": arguments.number("--seq-length"), "micro_batch": 1}
    for name, field in _DEGREES.items():
        if (number := arguments.number(name)) is not None:
            fields[field] = number
    if "global_batch" not in fields and (schedule := _SCHEDULE.search(" ".join(arguments.words(_GROWING[1])))):
        fields["global_batch"] = int(schedule[1])
    has_sequence = arguments.has("--sequence-parallel")
    fields["sequence_parallel"] = has_sequence and fields.get("tensor", 1) > 1
    fields["data_style"] = "zero1" if arguments.has("--use-distributed-optimizer") else "ddp"
    fields["overlap"] = arguments.has("--overlap-grad-reduce")
    if (style := arguments.text("--cp-comm-type")) is not None or fields.get("context", 1) > 1:
        if (style or "p2p") not in _STYLES:
            raise InputError(f"--cp-comm-type {style} is not read; presim has {', '.join(_STYLES)}")
        fields |= {"context_style": _STYLES[style or "p2p"]} if fields.get("context", 1) > 1 else {}
    if (virtual := _virtual(arguments, fields.get("pipeline", 1))) > 1:
        fields["virtual"] = virtual
    return fields


def growth_note(arguments: Arguments, fields: dict[str, Any]) -> list[str]:
    """A sentence where the batch grows during the run."""
    if not any(arguments.has(name) for name in _GROWING):
        return []
    arguments.taken |= set(_GROWING)
    samples = fields.get("global_batch")
    size_text = f", {samples:,} samples," if samples else ""
    return [f"The launch's batch grows during the run: its last size{size_text} is composed."]


def _virtual(arguments: Arguments, pipeline: int) -> int:
    chunks = arguments.number("--num-virtual-stages-per-pipeline-rank")
    per_chunk = arguments.number("--num-layers-per-virtual-pipeline-stage")
    if chunks is not None or per_chunk is None:
        return chunks or 1
    layers = arguments.count("--num-layers", 0)
    if layers % (pipeline * max(per_chunk, 1)):
        raise InputError(
            f"--num-layers-per-virtual-pipeline-stage {per_chunk} x {pipeline} stages does not divide {layers} layers; "
            "change one of them"
        )
    return layers // (pipeline * per_chunk)


def precision_of(arguments: Arguments) -> tuple[str, list[str]]:
    """The precision, and what a reader should know of it.

    Raises:
        InputError: the launch trains in fp32, or in a format that presim lacks.
    """
    if not arguments.has("--bf16") and not arguments.has("--fp16"):
        raise InputError(
            "the launch has neither --bf16 nor --fp16: Megatron trains in fp32, which presim does not read"
        )
    notes = [] if arguments.has("--bf16") else ["The launch's --fp16 is priced as bf16, without its scaled loss."]
    if arguments.text("--fp4-format") is not None:
        return "nvfp4", notes
    if arguments.text("--fp8-format") is None:
        return "bf16", notes
    recipe = arguments.text("--fp8-recipe") or "delayed"
    if recipe not in _RECIPES:
        raise InputError(f"--fp8-recipe {recipe} is not read; presim has {', '.join(_RECIPES)}")
    return _RECIPES[recipe], notes


def bridge_fields(arguments: Arguments, fields: dict[str, Any]) -> list[str]:
    """What is no field of a plan, as fields of Megatron-Bridge's configuration.

    Where Megatron-LM's default differs from that of presim's program, the former holds.

    Raises:
        InputError: a value is missing.
    """
    settings = [
        quoted(f"model.{_field(name)}={value}") for name in _MODEL_VALUES if (value := arguments.text(name)) is not None
    ]
    settings += [
        f"{_NOT_MODEL.get(name, f'model.{_field(name)}')}=true" for name in _MODEL_SWITCHES if arguments.has(name)
    ]
    for name, field in _RENAMED.items():
        if arguments.has(name):
            settings.append(f"{field}={arguments.text(name) if arguments.values[name] else 'true'}")
    settings += [f"model.{_field(name)}={arguments.real(name, _DROPOUT)}" for name in _DROPOUTS]
    if arguments.has("--overlap-param-gather") is not fields["overlap"] and fields["data_style"] == "zero1":
        value = "true" if arguments.has("--overlap-param-gather") else "false"
        settings += [f"{group}.overlap_param_gather={value}" for group in ("ddp", "comm_overlap")]
    if not arguments.has("--cross-entropy-loss-fusion"):
        settings.append("model.cross_entropy_loss_fusion=false")
    elif not arguments.text("--cross-entropy-fusion-impl"):
        settings.append("model.cross_entropy_fusion_impl=native")
    settings += [f"model.{field}=false" for name, field in _WITHOUT_FUSION.items() if arguments.has(name)]
    if arguments.has("--calculate-per-token-loss"):  # gradients are divided after they are summed
        settings += ["model.calculate_per_token_loss=true", "ddp.average_in_collective=false"]
    if fields["sequence_parallel"]:
        settings.append(f"model.tp_comm_overlap={str(arguments.has('--tp-comm-overlap')).lower()}")
    reduces_in_fp32 = str(not arguments.has("--grad-reduce-in-bf16")).lower()
    settings += [f"{group}.grad_reduce_in_fp32={reduces_in_fp32}" for group in ("ddp", "mixed_precision")]
    if arguments.has("--fp8-format") and not arguments.has("--fp8-param-gather"):
        settings.append("mixed_precision.fp8_param_gather=false")  # Bridge's recipes gather parameters in FP8
    if not arguments.has("--cuda-graph-impl"):
        settings += ["model.cuda_graph_impl=none", "model.cuda_graph_scope=[]"]  # as without Bridge's recipe
    arguments.taken |= {"--tp-comm-overlap", "--sequence-parallel"}
    return [*settings, *_recomputation(arguments)]


_OF_PLAN = (  # that follow from the options of a plan
    *(*_DEGREES, *_GROWING, "--cp-comm-type"),
    *("--num-layers*", "--num-virtual-stages*", "--seq-length", "--use-distributed-optimizer", "--sequence-parallel"),
)
_OVERLAPS = {"--overlap-grad-reduce": "overlap_grad_reduce", "--overlap-param-gather": "overlap_param_gather"}


def option_fields(words: Sequence[str], precision: str) -> list[str]:
    """Single options of Megatron-LM beside a plan, as fields of Megatron-Bridge's configuration; no default is set.

    ``words``: options with their values, as ``--recompute-granularity selective``. ``precision``: of the plan.

    Raises:
        InputError: an option follows from the plan, contradicts the precision, or is not read.
    """
    arguments = Arguments(words)
    for name in arguments.values:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _OF_PLAN):
            raise InputError(
                f"--framework-args has {name}, which follows from the plan; use the plan's own options, as --tp and "
                "--mbs"
            )
        if name in _REFUSED:
            raise InputError(f"--framework-args has {name}: presim does not read {_REFUSED[name]}; leave it out")
    settings = [quoted(f"model.{_field(name)}={arguments.text(name)}") for name in _MODEL_VALUES if arguments.has(name)]
    settings += [f"model.{_field(name)}={arguments.text(name)}" for name in _DROPOUTS if arguments.has(name)]
    switches = {name: _NOT_MODEL.get(name, f"model.{_field(name)}") for name in _MODEL_SWITCHES}
    switches |= {name: f"model.{_field(name)}" for name in ("--tp-comm-overlap", "--cross-entropy-loss-fusion")}
    settings += [f"{field}=true" for name, field in switches.items() if arguments.has(name)]
    for name, field in _RENAMED.items():
        if arguments.has(name):
            settings.append(f"{field}={arguments.text(name) if arguments.values[name] else 'true'}")
    settings += [f"model.{field}=false" for name, field in _WITHOUT_FUSION.items() if arguments.has(name)]
    groups = ("ddp", "comm_overlap")
    settings += [
        f"{group}.{field}=true" for name, field in _OVERLAPS.items() if arguments.has(name) for group in groups
    ]
    if arguments.has("--grad-reduce-in-bf16"):
        settings += [f"{group}.grad_reduce_in_fp32=false" for group in ("ddp", "mixed_precision")]
    _check_precision(arguments, precision)
    settings += _recomputation(arguments)
    if unread_names := unread(arguments):
        raise InputError(
            f"--framework-args has {unread_names[0]}, an option of Megatron-LM that presim does not read; set "
            "Megatron-Bridge's own field, as model.recompute_granularity=selective"
        )
    return settings


def quoted(field: str) -> str:
    """A field of Bridge's configuration, with its value in quotes if that has signs that Bridge reads as grammar.

    >>> quoted("model.pipeline_model_parallel_layout=Et*3|tL"), quoted("model.recompute_modules=[mlp]")
    ("model.pipeline_model_parallel_layout='Et*3|tL'", 'model.recompute_modules=[mlp]')
    """
    name, _, value = field.partition("=")
    has_signs = re.search(r"[|*()]", value) and value[0] not in "'\"[{"
    return f"{name}='{value}'" if has_signs else field


def _check_precision(arguments: Arguments, precision: str) -> None:
    """Raise if options of FP8 ask for another precision than the plan's."""
    recipe, has_format = arguments.text("--fp8-recipe"), arguments.has("--fp8-format")
    has_fp4 = [arguments.has(name) for name in ("--fp4-format", "--fp4-recipe")]
    if recipe is not None and recipe not in _RECIPES:
        raise InputError(f"--fp8-recipe {recipe} is not read; presim has {', '.join(_RECIPES)}")
    requested = "nvfp4" if any(has_fp4) else _RECIPES[recipe or "delayed"] if recipe or has_format else precision
    is_some_fp8 = recipe is None and has_format and "fp8" in precision  # a format alone says no recipe
    if requested != precision and not is_some_fp8:
        raise InputError(
            f"--framework-args asks for {requested}, and the plan for {precision}; use --precision {requested}"
        )


def _recomputation(arguments: Arguments) -> list[str]:
    old_names = [arguments.has(name) for name in ("--activations-checkpoint-method", "--checkpoint-activations")]
    granularity = "selective" if arguments.has("--recompute-activations") else arguments.text("--recompute-granularity")
    granularity = granularity or ("full" if any(old_names) else None)
    if granularity is None:
        return []
    settings = [f"model.recompute_granularity={granularity}"]
    modules = arguments.words("--recompute-modules")
    if granularity == "selective":
        return [*settings, f"model.recompute_modules=[{','.join(modules or ['core_attn'])}]"]
    method = arguments.text("--recompute-method") or arguments.text("--activations-checkpoint-method")
    layers = arguments.number("--recompute-num-layers") or arguments.number("--activations-checkpoint-num-layers")
    return [*settings, f"model.recompute_method={method or 'uniform'}", f"model.recompute_num_layers={layers or 1}"]


def unread(arguments: Arguments) -> list[str]:
    """Options that are not understood; those that change no time are not among them.

    Raises:
        InputError: one looks like a slip of an option that counts.
    """
    understood_names = sorted(arguments.taken)
    names = [name for name in arguments.rest() if not any(fnmatch.fnmatchcase(name, pattern) for pattern in _NO_EFFECT)]
    for name in names:
        if (alike := difflib.get_close_matches(name, understood_names, 1, _ALIKE)) and alike[0] not in arguments.values:
            raise InputError(f"Megatron has no option {name}; did you mean {alike[0]}?")
    return names


def _field(name: str) -> str:
    return name[2:].replace("-", "_")
