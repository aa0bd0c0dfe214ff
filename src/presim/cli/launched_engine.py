"""The option ``--from`` of ``presim serve``: a command that starts an engine's server, in words of the verb."""

from __future__ import annotations

import itertools

import click

_OPTION = "--from"


def expanded(command: click.Command, context: click.Context, words: list[str]) -> list[str]:
    """The words of a call with those of its ``--from`` before them, so that options beside it override.

    Options of the command that are not modelled are printed.
    """
    launches = [word.partition("=")[2] for word in words if word.startswith(f"{_OPTION}=")]
    launches += [following for word, following in itertools.pairwise(words) if word == _OPTION]
    if not launches:
        return words
    from presim.serving.launching.launch_words import words_of
    from presim.serving.launching.server_commands import read

    model = _model_beside(command, context, words)
    launch = words_of(read(launches[-1]), model, _has_experts, _is_quantised)
    if launch.unread:
        click.echo(f"presim: not modelled, of the command: {', '.join(launch.unread)}", err=True)
    return [*launch.options, *([] if model else [launch.model]), *words]


def _model_beside(command: click.Command, context: click.Context, words: list[str]) -> str | None:
    """The model that is named beside the command."""
    try:
        model = command.make_parser(context).parse_args(args=list(words))[0].get("model")
    except click.UsageError:  # which click reports once all words are there
        return None
    return model if isinstance(model, str) else None  # click has a value of its own for absent ones


def _has_experts(name: str) -> bool:
    from presim.serving.model_lookup import find

    return any(kind.experts is not None for kind in find(name).kinds)


def _is_quantised(name: str) -> bool:
    from presim.serving.model_lookup import find
    from presim.serving.serving_plan import ServingPlan
    from presim.serving.weight_types import typed

    return typed(ServingPlan(), find(name), None, None).weights != "bf16"
