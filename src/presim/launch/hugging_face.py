"""Hugging Face models: a DeepSpeed JSON and an accelerate YAML, each with a short training program."""

from __future__ import annotations

import json

from presim.errors import InputError
from presim.launch.job import Files, Job, program, refuse, torchrun

ACCELERATE, DEEPSPEED = "accelerate", "deepspeed"
_CONFIG = "model/config.json"


def accelerate(job: Job) -> Files:
    """accelerate's configuration with FSDP2 or HSDP, a program, and the command.

    Raises:
        InputError: accelerate cannot express the plan.
    """
    plan = job.plan
    _refuse(ACCELERATE, job, data_style=("fsdp2", "hsdp"))
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
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "num_machines": job.nodes,
        "num_processes": job.world_size,
        "rdzv_backend": "c10d",
        "main_process_port": 29500,
        "use_cpu": False,
        "fsdp_config": fsdp,
    }
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
        command=[*command, "train_accelerate.py", *_sizes(job)],
    )


def deepspeed(job: Job) -> Files:
    """DeepSpeed's configuration, a program, and the command.

    Raises:
        InputError: DeepSpeed cannot express the plan.
    """
    plan = job.plan
    _refuse(DEEPSPEED, job, data_style=("fsdp2", "zero1"))
    if plan.data_style == "fsdp2" and not plan.reshard:
        raise InputError("deepspeed cannot express this plan's reshard = False: ZeRO-3 frees parameters after use")
    stage = 3 if plan.data_style == "fsdp2" else 1
    settings = {
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "train_batch_size": plan.micro_batch * job.micro_batches * plan.data(job.world_size),
        "gradient_clipping": 1.0 if plan.clip else 0.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "overlap_comm": plan.overlap},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "weight_decay": 0.1, "torch_adam": True}},
        "steps_per_print": 1,
    }
    recompute = ["--recompute"] if plan.recompute == "full" else []
    return Files(
        framework=DEEPSPEED,
        files={
            "ds_config.json": json.dumps(settings, indent=1) + "\n",
            "train_deepspeed.py": program("deepspeed"),
            **_model(job),
        },
        command=torchrun(job, "train_deepspeed.py", *_sizes(job)[:2], *recompute),
        notes=("DeepSpeed keeps bf16 parameters beside its fp32 shards, whereas an FSDP2 plan casts its fp32 shards.",)
        if stage == 3
        else (),
    )


def _refuse(framework: str, job: Job, data_style: tuple[str, ...]) -> None:
    refuse(
        framework,
        job.plan,
        data_style=data_style,
        tensor=(1,),
        context=(1,),
        pipeline=(1,),
        recompute=("none", "full"),
        recompute_blocks=(0,),
        optimizer=("adamw",),
        passes=((),),
        offload_activations=(0,),
        offload_optimizer=("none",),
        attention=("auto",),
        cuda_graphs=(False,),
    )


def _model(job: Job) -> dict[str, str]:
    config = {name: value for name, value in job.config.items() if name != "presim_source"}
    return {_CONFIG: json.dumps(config, indent=1) + "\n"}


def _sizes(job: Job) -> list[str]:
    plan = job.plan
    words = ["--sequence", plan.sequence, "--batch", plan.micro_batch, "--accumulate", job.micro_batches]
    return [*map(str, words), *([] if plan.clip else ["--no-clip"])]


def _yaml(settings: dict[str, object]) -> str:
    """Format scalars and mappings of scalars as YAML."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {inner}: {_scalar(each)}" for inner, each in value.items())]
        else:
            lines.append(f"{name}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
