"""Write the launch files of every framework that can express a plan, and explain why others cannot."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.composition.launch_files import hugging_face, megatron_lm, torchtitan
from presim.composition.launch_files.launch_job import Files, LaunchJob, shell, slurm
from presim.composition.launch_files.shapes import read_config
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.system.files import make_folder, write_file

FRAMEWORKS: Mapping[str, Callable[[LaunchJob], Files]] = {
    torchtitan.NAME: torchtitan.files,
    megatron_lm.NAME: megatron_lm.files,
    hugging_face.DEEPSPEED: hugging_face.deepspeed,
    hugging_face.ACCELERATE: hugging_face.accelerate,
}


@dataclasses.dataclass(frozen=True)
class LaunchFiles:
    """The launch files written for a job."""

    folders: Mapping[str, Path]  # framework -> folder
    commands: Mapping[str, Sequence[str]]  # framework -> command to run in its folder
    notes: Sequence[str]  # differences from the plan, and why files are missing

    def lines(self) -> list[str]:
        """Lines for the user."""
        files = [f"{name}: {folder}/launch.sh, slurm.sh, predict.sh" for name, folder in self.folders.items()]
        return [*files, *self.notes]


def write_all(job: LaunchJob, directory: Path, presim_options: Sequence[str] = ()) -> LaunchFiles:
    """Write a folder for each framework; ``presim_options``: options that describe the cluster."""
    folders, commands, notes = {}, {}, []
    for name, files_of in FRAMEWORKS.items():
        try:
            files = files_of(job)
        except InputError as error:
            notes.append(f"No files for {name}: {error}.")
            continue
        folders[name] = directory / name
        commands[name] = list(files.command)
        _write(job, files, folders[name], presim_options)
        notes += files.notes
    return LaunchFiles(folders, commands, notes)


def write_for_model(model: str, plan: Plan, cluster: Mapping[str, Any], directory: Path) -> LaunchFiles:
    """Same as `write_all`, for a model named on the command line; ``cluster``: fields of `ClusterOptions`.

    Raises:
        InputError: the cluster is invalid, or a file cannot be written.
    """
    from presim.composition.graph.take import config_file
    from presim.hardware.cluster_choice import choose_cluster

    described_cluster = choose_cluster(**cluster)
    config = config_file(model)
    if config is None or not config.name.endswith(".json"):
        reason = f"No launch files: {model} is not a config.json, which frameworks need to create the model."
        return LaunchFiles({}, {}, [reason])
    nodes, gpus_per_node = described_cluster.nodes, described_cluster.gpus_per_node
    job = LaunchJob(config=read_config(config), plan=plan, nodes=nodes, gpus_per_node=gpus_per_node)
    options = [
        word
        for name, value in cluster.items()
        if value is not None and name not in ("nodes", "gpus_per_node", "world_size")
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return write_all(job, directory, options)


def _write(job: LaunchJob, files: Files, folder: Path, options: Sequence[str]) -> None:
    """Write the files, the launch scripts, and the script that predicts the job."""
    setting = "".join(f"export {name}={value}\n" for name, value in files.environment.items())
    predicted = shlex.join(["presim", "run", *options, "--", *files.command])
    texts = {
        **files.files,
        "launch.sh": shell(files),
        "slurm.sh": slurm(job, files),
        "predict.sh": f'#!/bin/sh\ncd "$(dirname "$0")" || exit 1\n{setting}exec {predicted}\n',
    }
    for name, text in texts.items():
        make_folder((folder / name).parent)
        write_file(folder / name, text.encode())
