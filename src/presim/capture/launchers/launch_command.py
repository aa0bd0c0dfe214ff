"""Parse a launch command, starting with the launcher named by its first word."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

from presim.capture.launchers.accelerate import read_accelerate
from presim.capture.launchers.deepspeed_launcher import read_deepspeed
from presim.capture.launchers.launch import Launch, Scheme, Shape, Worker
from presim.capture.launchers.mpi import read_mpirun
from presim.capture.launchers.programs import SHELLS, shell_command, unsupported_reason
from presim.capture.launchers.python import is_python, read_program, read_python, split_assignments
from presim.capture.launchers.slurm import read_srun
from presim.capture.launchers.torchrun import read_torchrun
from presim.errors import InputError

LAUNCHERS: Mapping[str, Callable[[Sequence[str]], Launch]] = {
    "torchrun": read_torchrun,
    "accelerate": lambda words: _accelerate(words),
    "accelerate-launch": read_accelerate,
    "deepspeed": read_deepspeed,
    "srun": lambda words: _read_wrapped(*read_srun(words)),
    "mpirun": lambda words: _read_wrapped(*read_mpirun(words)),
    "mpiexec": lambda words: _read_wrapped(*read_mpirun(words)),
    "mpiexec.hydra": lambda words: _read_wrapped(*read_mpirun(words)),
    "env": lambda words: _env(words),
}
_MODULES: Mapping[str, Callable[[Sequence[str]], Launch]] = {  # launchers started with `python -m`
    "torch.distributed.run": read_torchrun,
    "torch.distributed.launch": lambda words: read_torchrun(words, legacy=True),
    "accelerate.commands.launch": read_accelerate,
    "accelerate.commands.accelerate_cli": lambda words: _accelerate(words),
    "deepspeed.launcher.runner": read_deepspeed,
}


def is_command(word: str) -> bool:
    """Whether a word starts a launch command (launcher, interpreter, ``NAME=value``) rather than naming a script."""
    name = os.path.basename(word)
    return name in LAUNCHERS or name in SHELLS or is_python(word) or bool(split_assignments([word])[0])


def is_launcher(module: str) -> bool:
    """Whether a module is a launcher started with ``python -m``."""
    return module in _MODULES


def check_script(words: Sequence[str]) -> None:
    """Refuse a program that is not a Python script.

    Raises:
        InputError: it is another program.
    """
    if sentence := unsupported_reason(words, is_command):
        raise InputError(sentence)


def read_command(words: Sequence[str]) -> Launch:
    """Parse a launch command into its program, the world's shape and each rank's variables.

    Raises:
        InputError: the command is invalid, or starts no Python program.
    """
    launch = _read(words)
    check_nested(launch)
    return launch


def check_nested(launch: Launch) -> None:
    """Refuse a program that would start its own ranks, which presim has already started.

    Raises:
        InputError: it is a launcher, or presim itself.
    """
    name = os.path.basename(launch.script)
    if name == "presim" or (launch.module and launch.script in ("presim", "presim.cli", "presim.cli.main")):
        raise InputError(
            "the command runs presim inside presim: leave out all but the first `presim run` and its options"
        )
    if (name in LAUNCHERS and not os.path.isfile(launch.script)) or (launch.module and is_launcher(launch.script)):
        raise InputError(
            f"{launch.launcher or 'the command'} starts another launcher, {name}: only srun and mpirun may do that; "
            "leave one of them out"
        )


def _read(words: Sequence[str]) -> Launch:
    name = os.path.basename(words[0])
    if name in LAUNCHERS:
        return LAUNCHERS[name](words[1:])
    if name in SHELLS:
        return _program(shell_command(words))
    if split_assignments(words[:1])[0]:
        return _env(words)
    launch = read_python(words)
    if launch.module and launch.script in _MODULES:
        inner = _MODULES[launch.script](launch.args)
        return dataclasses.replace(inner, python=launch.python, notes=(*launch.notes, *inner.notes))
    return launch


def _accelerate(words: Sequence[str]) -> Launch:
    if not words or words[0] != "launch":
        raise InputError(f"accelerate {' '.join(words[:1])}: presim supports only `accelerate launch`")
    return read_accelerate(words[1:])


def _env(words: Sequence[str]) -> Launch:
    variables, command = split_assignments(words)
    if not command or command[0].startswith("-"):
        raise InputError(f"env {' '.join(words)}: presim supports only `env NAME=value … COMMAND`")
    inner = _program(command)
    return dataclasses.replace(inner, variables={**variables, **inner.variables})


def _program(words: Sequence[str]) -> Launch:
    """Parse what a shell or ``env`` starts: a launch command, or a script itself."""
    if is_command(words[0]):
        return read_command(words)
    check_script(words)
    return read_program(words, Launch(""))


def _read_wrapped(outer: Launch, program: list[str]) -> Launch:
    """Parse srun or mpirun around Python, or around another launcher that runs once per node."""
    if not is_command(program[0]):
        check_script(program)
        return read_program(program, outer)
    inner = read_command(program)
    merged = dataclasses.replace(
        inner, variables={**outer.variables, **inner.variables}, notes=(*outer.notes, *inner.notes)
    )
    if inner.launcher == "python":
        return dataclasses.replace(
            merged, launcher=outer.launcher, shape=outer.shape, default_shape=outer.default_shape, schemes=outer.schemes
        )
    nodes = _nodes(outer.shape)
    if inner.shape.nodes and nodes and inner.shape.nodes != nodes:
        raise InputError(
            f"{outer.launcher} starts {inner.launcher} on {nodes} nodes, but {inner.launcher} expects "
            f"{inner.shape.nodes}: correct one"
        )
    shape = dataclasses.replace(inner.shape, nodes=inner.shape.nodes or nodes)
    return dataclasses.replace(merged, shape=shape, schemes=(*map(_once_per_node, outer.schemes), *inner.schemes))


def _nodes(shape: Shape) -> int | None:
    return shape.world or ((shape.nodes or 1) * shape.per_node if shape.per_node else shape.nodes)


def _once_per_node(scheme: Scheme) -> Scheme:
    """The variables of a launcher that starts one process per node."""
    return lambda worker: scheme(Worker(worker.node, worker.nodes, 1, worker.port))
