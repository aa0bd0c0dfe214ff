"""The search over the arguments of a command, each captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from presim.errors import InputError
from presim.options import RunOptions
from presim.search.ask import Asked, request_of
from presim.search.knobs import CLUSTER
from presim.search.request import Request
from presim.search.space import Space, parse_knobs
from presim.search.spaces.ask import request_with_space
from presim.search.trials.evaluator import placeholders
from presim.search.trials.trial import Value


def request_for_command(
    command: Sequence[str], asked: Asked, options: RunOptions, facts: Mapping[str, Value] | None = None
) -> Request:
    """The search over a command's placeholders; ``facts``: what the constraints of a space know of the model.

    Raises:
        InputError: a placeholder has no values, or a varied knob no placeholder.
    """
    if asked.confirm:
        raise InputError(
            "--confirm captures the best composed plans, and no plan can be composed without a model: name it, e.g. "
            "`presim search llama-8b/ --space megatron --confirm 5 -- COMMAND`, or leave out --confirm"
        )
    varied = parse_knobs(asked.vary, own=True)
    if asked.space:
        return request_with_space(command, asked, options, varied, facts or {})
    holders = placeholders(command)
    if missing := [name for name in holders if name not in varied]:
        raise InputError(
            f"the command has {{{missing[0]}}}, which has no values: add --vary {missing[0]}=…, or write a value"
        )
    cluster = [name for name in CLUSTER if name in varied]
    if unused := [name for name in varied if name not in holders and name not in cluster]:
        raise InputError(
            f"{unused[0]} is varied, but the command has no {{{unused[0]}}}: put it where its value goes, e.g. "
            f"--{unused[0]} {{{unused[0]}}}"
        )
    return request_of(" ".join(command), asked, options, Space(varied, {}), command=list(command))
