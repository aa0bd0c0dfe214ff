"""The job to launch, and a framework's files for it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from typing import Any

import msgspec

from presim.composition.plan import Plan
from presim.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaunchJob:
    """A model with a plan on a cluster."""

    config: Mapping[str, Any]  # the model's ``config.json``
    plan: Plan
    nodes: int
    gpus_per_node: int

    @property
    def world_size(self) -> int:
        """Number of GPUs."""
        return self.nodes * self.gpus_per_node

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a rank's step."""
        return self.plan.micro_batches(self.world_size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """A framework's files for a job; ``command`` starts it in their folder."""

    framework: str
    files: Mapping[str, str]  # name -> text
    command: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()  # differences between the framework and the plan


_SIZES = ("sequence", "micro_batch", "global_batch", "clip", "passes")  # every framework has them
_NOT_OF_LAUNCH = ("routing", "style")  # a property of the data, and the host times that composing assumes
_WITH_DEGREE = {  # fields that say nothing unless a degree is above 1
    "tensor": ("sequence_parallel", "vocabulary_parallel"),
    "context": ("context_style",),
    "expert": ("expert_exchange", "expert_capacity", "pad_experts"),
    "pipeline": ("virtual", "schedule", "side_by_side", "rank_passes", "stages"),
}


def check_supported(framework: str, plan: Plan, expressed: Collection[str], **allowed: Sequence[object]) -> None:
    """Check that the framework can express the plan.

    ``expressed``: fields of which its files have every value. ``allowed``: values of others. Fields in neither have
    their default, so that no field is left out in silence.

    Raises:
        InputError: the framework does not support a field's value.
    """
    silent = {name for degree, names in _WITH_DEGREE.items() if getattr(plan, degree) == 1 for name in names}
    free_fields = {*allowed, *expressed, *_SIZES, *_NOT_OF_LAUNCH, *silent}
    only_defaults = {
        field.name: (field.default,) for field in msgspec.structs.fields(Plan) if field.name not in free_fields
    }
    for name, values in {**allowed, **only_defaults}.items():
        value = getattr(plan, name)
        if value not in values:
            listed = " or ".join(
                "the default" if allowed_value == "" else str(allowed_value) for allowed_value in values
            )
            raise InputError(f"{framework} cannot express this plan's {name} = {value!r}, only {listed}")


def torchrun(job: LaunchJob, *words: str) -> list[str]:
    """The command that starts a program on each GPU; several nodes rendezvous at the first one."""
    command = ["torchrun", "--nnodes", str(job.nodes), "--nproc-per-node", str(job.gpus_per_node)]
    if job.nodes > 1:
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "$MASTER_ADDR:29500"]
    return [*command, *words]


def shell(files: Files) -> str:
    """A shell script to run on each node."""
    return "".join(
        (
            "#!/bin/sh\n",
            "# Run this on each node; with several nodes, set MASTER_ADDR to the name of the first.\n",
            'cd "$(dirname "$0")" || exit 1\n',
            *(f"export {name}={value}\n" for name, value in files.environment.items()),
            f"exec {quoted(files.command)}\n",
        )
    )


def slurm(job: LaunchJob, files: Files) -> str:
    """A batch script for Slurm."""
    return "".join(
        (
            "#!/bin/bash\n",
            f"#SBATCH --nodes={job.nodes}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={job.gpus_per_node}\n",
            f"#SBATCH --job-name={files.framework}\n\n",
            'cd "$SLURM_SUBMIT_DIR" || exit 1\n',
            'export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"\n',
            "srun sh launch.sh\n",
        )
    )


def quoted(words: Sequence[str]) -> str:
    """A command line in which shell variables are expanded."""
    return " ".join(f'"{word}"' if word.startswith("$") else shlex.quote(word) for word in words)


def program(name: str) -> str:
    """The text of a bundled program."""
    return resources.files("presim.composition.launch_files").joinpath("programs", f"{name}.txt").read_text()
