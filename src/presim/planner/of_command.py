"""Build the request of a search over a command's placeholders."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.planner.knobs import CLUSTER
from presim.planner.search_options import SearchOptions, request_of
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space, parse_knobs
from presim.planner.spaces.space_request import request_with_space
from presim.planner.trials.placeholders import placeholders
from presim.planner.trials.trial import Value


def request_for_command(
    command: Sequence[str], settings: SearchOptions, options: RunOptions, facts: Mapping[str, Value] | None = None
) -> SearchRequest:
    """Request for a search over a command's placeholders; ``facts``: model sizes for the constraints of a space.

    Raises:
        InputError: a placeholder has no values, or a varied knob has no placeholder.
    """
    varied = parse_knobs(settings.vary, any_name=True)
    if settings.space:
        return request_with_space(command, settings, options, varied, facts or {})
    holders = placeholders(command)
    if missing := [name for name in holders if name not in varied]:
        raise InputError(
            f"the command has {{{missing[0]}}}, which has no values: add --vary {missing[0]}=…, or write a value"
        )
    cluster = [name for name in CLUSTER if name in varied]
    if unused := [name for name in varied if name not in holders and name not in cluster]:
        raise InputError(
            f"{unused[0]} is varied, but the command has no {{{unused[0]}}}: put the placeholder where the value goes, "
            f"e.g. --{unused[0]} {{{unused[0]}}}"
        )
    request = request_of(" ".join(command), settings, options, Space(varied, {}), command=list(command))
    return dataclasses.replace(request, confirm=settings.confirm, confirm_command=list(command))
