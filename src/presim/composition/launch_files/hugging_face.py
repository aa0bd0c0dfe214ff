"""Hugging Face models: a DeepSpeed JSON and an accelerate YAML, each with a short training program."""

from __future__ import annotations

import json

from presim.composition.launch_files.launch_job import Files, LaunchJob, check_supported, program, torchrun
from presim.composition.launch_files.layer_passes import words_of
from presim.composition.plan import Plan
from presim.errors import InputError

ACCELERATE, DEEPSPEED = "accelerate", "deepspeed"
_CONFIG = "model/config.json"
_SAVED = "accelerate's program offloads activations by PyTorch's save_on_cpu, whose copies wait for the computation."
_AUTOCAST = "accelerate's DDP casts fp32 parameters at each use, whereas a DDP plan has bf16 parameters."
_CAST = "DeepSpeed keeps bf16 parameters beside its fp32 shards, whereas an FSDP2 plan casts its fp32 shards."
_RESIDENT = "DeepCompile keeps on the GPU what its memory budget allows, whereas the plan streams all states."
_BUDGETED = (
    "deepspeed cannot express this plan's offload_activations: DeepCompile's offload_activation chooses tensors by a "
    "memory budget; accelerate and megatron can"
)


def accelerate(job: LaunchJob) -> Files:
    """accelerate's configuration with FSDP2, HSDP or DistributedDataParallel, a program, and the command.

    Raises:
        InputError: accelerate cannot express the plan.
    """
    plan = job.plan
    _check_job(ACCELERATE, job, data_style=("fsdp2", "hsdp", "ddp"), offload_optimizer=("none",))
    if len(plan.passes) > 1:
        raise InputError(f"accelerate's program takes one pass, not {' and '.join(plan.passes)}")
    layers = [word for name in words_of(ACCELERATE, plan) for word in ("--layers", name)]
    offload = ["--offload-activations", str(plan.offload_activations)] if plan.offload_activations else []
    fsdp = {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": plan.reshard,
        "fsdp_offload_params": False,
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_activation_checkpointing": plan.recompute == "full",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    settings: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if plan.data_style == "ddp" else "FSDP",
        "mixed_precision": "bf16",
        "num_machines": job.nodes,
        "num_processes": job.world_size,
        "rdzv_backend": "c10d",
        "main_process_port": 29500,
        "use_cpu": False,
        **({} if plan.data_style == "ddp" else {"fsdp_config": fsdp}),
    }
    recompute = ["--recompute"] if plan.data_style == "ddp" and plan.recompute == "full" else []
    if plan.data_style == "hsdp":
        copies = plan.sharing(job.world_size) // plan.shard
        settings["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": copies,
            "parallelism_config_dp_shard_size": plan.shard,
            "parallelism_config_tp_size": 1,
            "parallelism_config_cp_size": 1,
        }
    command = ["accelerate", "launch", "--config_file", "accelerate.yaml"]
    if job.nodes > 1:
        command += ["--main_process_ip", "$MASTER_ADDR"]
    return Files(
        framework=ACCELERATE,
        files={"accelerate.yaml": _yaml(settings), "train_accelerate.py": program("accelerate"), **_model(job)},
        command=[*command, "train_accelerate.py", *_sizes(job), *layers, *offload, *recompute],
        notes=(*((_SAVED,) if offload else ()), *((_AUTOCAST,) if plan.data_style == "ddp" else ())),
    )


def deepspeed(job: LaunchJob) -> Files:
    """DeepSpeed's configuration, a program, and the command.

    Raises:
        InputError: DeepSpeed cannot express the plan.
    """
    plan = job.plan
    _check_job(DEEPSPEED, job, data_style=("fsdp2", "zero1"), offload_optimizer=("none", "cpu", "states"))
    words_of(DEEPSPEED, plan)
    if plan.offload_activations:
        raise InputError(_BUDGETED)
    if plan.data_style == "fsdp2" and not plan.reshard:
        raise InputError("deepspeed cannot express this plan's reshard = False: ZeRO-3 frees parameters after use")
    stage = 3 if plan.data_style == "fsdp2" else 1
    zero: dict[str, object] = {"stage": stage, "overlap_comm": plan.overlap}
    on_cpu = plan.offload_optimizer == "cpu"
    if on_cpu:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    settings = {
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "train_batch_size": plan.micro_batch * job.micro_batches * plan.data(job.world_size),
        "gradient_clipping": 1.0 if plan.clip else 0.0,
        "bf16": {"enabled": True},
        "zero_optimization": zero,
        # with offloading, DeepSpeed's own AdamW for CPUs
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "weight_decay": 0.1, "torch_adam": not on_cpu}},
        "steps_per_print": 1,
    }
    streamed = plan.offload_optimizer == "states"
    if streamed:
        _check_streamed(job)
        settings["compile"] = {"deepcompile": True, "offload_opt_states": True}
    recompute = ["--recompute"] if plan.recompute == "full" else []
    return Files(
        framework=DEEPSPEED,
        files={
            "ds_config.json": json.dumps(settings, indent=1) + "\n",
            "train_deepspeed.py": program("deepspeed"),
            **_model(job),
        },
        command=torchrun(job, "train_deepspeed.py", *_sizes(job)[:2], *_attention(plan), *recompute),
        notes=[*([_CAST] if stage == 3 else []), *([_RESIDENT] if streamed else [])],
    )


def _check_streamed(job: LaunchJob) -> None:
    """Check what DeepCompile asks of offloaded states."""
    if job.plan.data_style != "fsdp2":
        raise InputError("deepspeed streams optimizer states with ZeRO-3 only; use data_style = 'fsdp2'")
    if job.micro_batches > 1:
        raise InputError(
            f"deepspeed's offload_opt_states moves the states once per micro-batch, and this plan has "
            f"{job.micro_batches}; use a global batch of one micro-batch per rank"
        )


def _check_job(framework: str, job: LaunchJob, data_style: tuple[str, ...], offload_optimizer: tuple[str, ...]) -> None:
    check_supported(
        framework,
        job.plan,
        ("shard", "overlap", "reshard", "recompute", "recompute_whole", "offload_activations"),
        data_style=data_style,
        offload_optimizer=offload_optimizer,
        attention=("auto", "cudnn", "flash"),
    )


def _model(job: LaunchJob) -> dict[str, str]:
    config = {name: value for name, value in job.config.items() if name != "presim_source"}
    return {_CONFIG: json.dumps(config, indent=1) + "\n"}


def _sizes(job: LaunchJob) -> list[str]:
    plan = job.plan
    words = ["--sequence", plan.sequence, "--batch", plan.micro_batch, "--accumulate", job.micro_batches]
    return [*map(str, words), *_attention(plan), *([] if plan.clip else ["--no-clip"])]


def _attention(plan: Plan) -> list[str]:
    return [] if plan.attention == "auto" else ["--attention", plan.attention]


def _yaml(settings: dict[str, object]) -> str:
    """Format scalars and mappings of scalars as YAML."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {inner}: {_scalar(content)}" for inner, content in value.items())]
        else:
            lines.append(f"{name}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
