"""The framework whose captures price a search's best plans, and the values of knobs that it has."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from presim.composition.frameworks import launched, megatron
from presim.composition.graph.take import config_file
from presim.errors import InputError
from presim.planner.knobs import short
from presim.planner.search_options import SearchOptions
from presim.planner.trials.trial import Value, format_value
from presim.planner.trials.trial_messages import Trainer

PLANS = 8  # to price from captures, unless the user says how many: minutes on two cores
_FOR_CONFIRM = {"accelerate": "hf"}  # names of launch files, and of `presim compose`
_ONE_RANK = dict.fromkeys(("tensor", "pipeline", "virtual", "context", "expert"), (1,))
# Knobs that the user left open; none: the framework does not take the knob.
_VALUES: Mapping[str, Mapping[str, Sequence[Value]]] = {
    "megatron": {"data_style": ("zero1", "ddp"), "reshard": (), "shard": ()},
    "torchtitan": {"data_style": ("fsdp2", "hsdp")},
    "hf": {"data_style": ("fsdp2", "hsdp", "ddp"), "sequence_parallel": (False,), **_ONE_RANK},
    "deepspeed": {
        "data_style": ("fsdp2", "zero1"),
        "reshard": (True,),
        "shard": (0,),
        "sequence_parallel": (False,),
        **_ONE_RANK,
    },
}


def values_of(framework: str, values: Mapping[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """The values of open knobs that a framework has, by knob.

    >>> values_of("megatron", {"data_style": ("fsdp2", "zero1"), "reshard": (True, False), "tensor": (1, 2)})
    {'data_style': ('zero1',), 'tensor': (1, 2)}
    """
    of_framework = _VALUES[framework]
    cut = {name: [value for value in values[name] if value in of_framework.get(name, values[name])] for name in values}
    return {name: tuple(remaining) for name, remaining in cut.items() if remaining}


def check_values(framework: str, values: Mapping[str, Sequence[Value]]) -> None:
    """Raise if a framework has none of the values that the user gives a knob.

    Raises:
        InputError: names the knob, and what the framework has.
    """
    for name, of_framework in _VALUES[framework].items():
        if name not in values or any(value in of_framework for value in values[name]):
            continue
        option, listed = f"--{short(name).replace('_', '-')}", ", ".join(map(format_value, values[name]))
        if not of_framework:
            raise InputError(f"--framework {framework} does not take {option}; leave it out")
        raise InputError(
            f"--framework {framework} has no {option} {listed}, only {', '.join(map(format_value, of_framework))}; "
            "change it, or name another framework"
        )


def trainer_of(model: str, settings: SearchOptions) -> tuple[Trainer | None, int]:
    """The framework that prices plans of a model, and how many; None and 0 where composed figures stand.

    Raises:
        InputError: options contradict each other, the framework is not installed, or it builds no such model.
    """
    is_named = settings.framework != "auto"
    plans = settings.framework_plans
    if plans is None:
        plans = PLANS if is_named and not settings.confirm else 0
    if not plans:
        _refuse_without_framework(settings)
        return None, 0
    if not is_named:
        raise InputError(
            f"--framework-plans {plans} prices plans from a framework's captures; name it, as --framework megatron"
        )
    framework = _FOR_CONFIRM.get(settings.framework, settings.framework)
    _check_framework(framework, model)
    try:
        overrides = shlex.split(settings.framework_args or "")
    except ValueError as error:
        raise InputError(f"--framework-args {settings.framework_args!r} cannot be split into words: {error}") from error
    return Trainer(model=model, framework=framework, precision=settings.precision or "bf16", overrides=overrides), plans


def _refuse_without_framework(settings: SearchOptions) -> None:
    for name in ("precision", "framework_args"):
        if getattr(settings, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{option} is of plans that a framework's captures price; add --framework, and --framework-plans "
                "beside --confirm"
            )


def _check_framework(framework: str, model: str) -> None:
    if framework == "megatron":
        megatron.installed_versions()
    else:
        launched.installed_versions(framework)
    if config_file(model) is None:
        raise InputError(
            f"{model} is no Hugging Face config, from which {framework} builds its model; name one, or leave out "
            "--framework"
        )
