"""Finds the launcher of a command by its first word."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

from presim.capture.launchers.accelerate import read_accelerate
from presim.capture.launchers.deepspeed import read_deepspeed
from presim.capture.launchers.launch import Launch, Place, Scheme, Shape
from presim.capture.launchers.mpi import read_mpirun
from presim.capture.launchers.programs import SHELLS, shell_command, why_not
from presim.capture.launchers.python import assignments, is_python, read_program, read_python
from presim.capture.launchers.slurm import read_srun
from presim.capture.launchers.torchrun import read_torchrun
from presim.errors import InputError

LAUNCHERS: Mapping[str, Callable[[Sequence[str]], Launch]] = {
    "torchrun": read_torchrun,
    "accelerate": lambda words: _accelerate(words),
    "accelerate-launch": read_accelerate,
    "deepspeed": read_deepspeed,
    "srun": lambda words: _around(*read_srun(words)),
    "mpirun": lambda words: _around(*read_mpirun(words)),
    "mpiexec": lambda words: _around(*read_mpirun(words)),
    "mpiexec.hydra": lambda words: _around(*read_mpirun(words)),
    "env": lambda words: _env(words),
}
_MODULES: Mapping[str, Callable[[Sequence[str]], Launch]] = {  # launchers that `python -m` starts
    "torch.distributed.run": read_torchrun,
    "torch.distributed.launch": lambda words: read_torchrun(words, legacy=True),
    "accelerate.commands.launch": read_accelerate,
    "accelerate.commands.accelerate_cli": lambda words: _accelerate(words),
    "deepspeed.launcher.runner": read_deepspeed,
}


def is_command(word: str) -> bool:
    """Whether a word begins a launch command rather than names a script: a launcher, an interpreter, ``NAME=value``."""
    name = os.path.basename(word)
    return name in LAUNCHERS or name in SHELLS or is_python(word) or bool(assignments([word])[0])


def is_launcher(module: str) -> bool:
    """Whether a module is a launcher that ``python -m`` starts."""
    return module in _MODULES


def check_script(words: Sequence[str]) -> None:
    """Refuse what is no script of Python's, with what to do instead.

    Raises:
        InputError: it is another program.
    """
    if sentence := why_not(words, is_command):
        raise InputError(sentence)


def read_command(words: Sequence[str]) -> Launch:
    """The program, the world's shape and each rank's variables that a launch command means.

    Raises:
        InputError: the command cannot be understood, or starts no Python program.
    """
    launch = _read(words)
    check_nested(launch)
    return launch


def check_nested(launch: Launch) -> None:
    """Refuse a program that would start ranks of its own where presim has taken the launcher's place.

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
            f"{launch.launcher or 'the command'} starts {name}, a launcher of its own: only srun and mpirun may start "
            "one; leave one of them out"
        )


def _read(words: Sequence[str]) -> Launch:
    name = os.path.basename(words[0])
    if name in LAUNCHERS:
        return LAUNCHERS[name](words[1:])
    if name in SHELLS:
        return _program(shell_command(words))
    if assignments(words[:1])[0]:
        return _env(words)
    launch = read_python(words)
    if launch.module and launch.script in _MODULES:
        inner = _MODULES[launch.script](launch.args)
        return dataclasses.replace(inner, python=launch.python, notes=(*launch.notes, *inner.notes))
    return launch


def _accelerate(words: Sequence[str]) -> Launch:
    if not words or words[0] != "launch":
        raise InputError(f"accelerate {' '.join(words[:1])}: presim takes the place of `accelerate launch` only")
    return read_accelerate(words[1:])


def _env(words: Sequence[str]) -> Launch:
    variables, rest = assignments(words)
    if not rest or rest[0].startswith("-"):
        raise InputError(f"env {' '.join(words)}: presim understands `env NAME=value … COMMAND` only")
    inner = _program(rest)
    return dataclasses.replace(inner, variables={**variables, **inner.variables})


def _program(words: Sequence[str]) -> Launch:
    """What a shell starts: a launch command, or a script by itself."""
    if is_command(words[0]):
        return read_command(words)
    check_script(words)
    return read_program(words, Launch(""))


def _around(outer: Launch, program: list[str]) -> Launch:
    """srun or mpirun around Python, or around another launcher that each node runs once."""
    if not is_command(program[0]):
        check_script(program)
        return read_program(program, outer)
    inner = read_command(program)
    together = dataclasses.replace(
        inner, variables={**outer.variables, **inner.variables}, notes=(*outer.notes, *inner.notes)
    )
    if inner.launcher == "python":
        return dataclasses.replace(
            together, launcher=outer.launcher, said=outer.said, otherwise=outer.otherwise, schemes=outer.schemes
        )
    nodes = _nodes(outer.said)
    if inner.said.nodes and nodes and inner.said.nodes != nodes:
        raise InputError(
            f"{outer.launcher} starts {nodes} {inner.launcher}s, and these are told of {inner.said.nodes} nodes: "
            "correct one"
        )
    said = dataclasses.replace(inner.said, nodes=inner.said.nodes or nodes)
    return dataclasses.replace(together, said=said, schemes=(*map(_by_node, outer.schemes), *inner.schemes))


def _nodes(shape: Shape) -> int | None:
    return shape.world or ((shape.nodes or 1) * shape.per_node if shape.per_node else shape.nodes)


def _by_node(scheme: Scheme) -> Scheme:
    """What a launcher sets that starts one process on each node."""
    return lambda place: scheme(Place(place.node, place.nodes, 1, place.port))
