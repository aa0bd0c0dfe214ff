"""Makes a request of the options of ``presim rl``, and of a framework's recipe."""

from __future__ import annotations

import dataclasses
import shlex
import typing
from collections.abc import Sequence
from typing import Any

from presim.errors import InputError
from presim.evaluation.options import ClusterOptions
from presim.post_training.placement_file import placement_fields
from presim.post_training.recipes.frameworks import FRAMEWORKS
from presim.post_training.recipes.recipe_request import FromRecipe, read_recipe
from presim.post_training.response_lengths import longest, response_lengths
from presim.post_training.rl_job import Offloads
from presim.post_training.rl_request import Fusion, RlRequest
from presim.system.files import shortened

_CLUSTER = tuple(field.name for field in dataclasses.fields(ClusterOptions))
# Of an environment and a judge, which a file of pools may have.
_ANSWERS = ("turns", "tool_seconds", "tool_tokens", "tool_workers", "reward_seconds", "reward_workers")
_TURNS = (
    "Responses of the recipe have several turns, and it does not say how many on average: they are simulated with one. "
    "Add --turns, --tool-seconds and --tool-tokens."
)
_EXAMPLE = "lognormal:mean=8000,p99=30000,max=32768"


def request_of(
    words: Sequence[str], recipe: tuple[str, str] | None, options: dict[str, Any], explicit: set[str]
) -> tuple[RlRequest, ClusterOptions, tuple[str, ...]]:
    """The request, the cluster, and notes about the recipe; ``explicit``: options of the command line itself.

    Raises:
        InputError: a word is neither a model nor an override, or something that no default can say is missing.
    """
    models, overrides = ([word for word in words if ("=" in word) == is_override] for is_override in (False, True))
    if len(models) > 1:
        raise InputError(f"{len(models)} models, {shortened(models[0])} and {shortened(models[1])}; give one")
    if overrides and recipe is None:
        raise InputError(f"{shortened(overrides[0])!r} overrides a recipe; add --from FRAMEWORK FILE")
    fields = _fields(options)
    placed = _placed(options["placement"], explicit)
    from_recipe = _recipe(recipe, overrides, options) if recipe else None
    if from_recipe is not None:
        fields = _merged(fields, from_recipe, explicit)
    fields |= placed
    if models:
        fields["model"] = models[0]
    if "model" not in fields:
        raise InputError("no model is named; give one, e.g. presim rl qwen3-8b --gpu h100-sxm --response 4000")
    _check_response(fields, from_recipe)
    if from_recipe is not None and from_recipe.filters and "keep" not in explicit:
        raise InputError(
            "the recipe drops prompts by their rewards, and does not say how many pass; add --keep, e.g. --keep 0.6"
        )
    cluster = {name: options[name] for name in _CLUSTER}
    if from_recipe is not None and not any(options[name] for name in ("nodes", "world_size", "cluster")):
        cluster |= {
            "world_size": from_recipe.world_size,
            "gpus_per_node": options["gpus_per_node"] or from_recipe.gpus_per_node,
        }
    notes = from_recipe.notes if from_recipe else ()
    if from_recipe is not None and from_recipe.has_turns and fields["turns"] == 1:
        notes = (*notes, _TURNS)
    return RlRequest(**fields), ClusterOptions(**cluster), notes


def _placed(word: str, explicit: set[str]) -> dict[str, Any]:
    """Fields by a file of pools; none if the placement is a word."""
    if word in ("colocated", "separate", "hybrid"):
        return {}
    if not word.endswith(".toml"):
        raise InputError(
            f"--placement is colocated, separate, hybrid or a file with pools (.toml), not {shortened(word)!r}; "
            "correct it"
        )
    fields = placement_fields(word)
    answers = [name for name in _ANSWERS if name in fields]
    for name in ("rollout_gpus", "staleness", "partial", "critic", "reference", "reward_model", *answers):
        if name in explicit:
            raise InputError(
                f"--{name.replace('_', '-')} is set beside {shortened(word)}, which says it, too; keep one"
            )
    return fields


def _recipe(recipe: tuple[str, str], overrides: Sequence[str], options: dict[str, Any]) -> FromRecipe:
    framework, path = recipe
    if framework not in FRAMEWORKS:
        raise InputError(f"no recipes of {shortened(framework)!r} are read; there are {', '.join(FRAMEWORKS)}")
    per_node = options["gpus_per_node"] or 8
    gpus = options["world_size"] or (options["nodes"] * per_node if options["nodes"] else None)
    return read_recipe(framework, path, overrides, gpus)


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """Fields of a request by the options alone."""
    request_fields = {name: value for name, value in options.items() if name not in _CLUSTER}
    engine = {
        name.removeprefix("engine_"): request_fields.pop(name)
        for name in list(request_fields)
        if name.startswith("engine_")
    }
    offload = tuple(filter(None, request_fields.pop("offload").split(",")))
    if unknown := [word for word in offload if word not in typing.get_args(Offloads)]:
        raise InputError(
            f"--offload takes {', '.join(typing.get_args(Offloads))}, or several with commas; got "
            f"{shortened(unknown[0])!r}"
        )
    if (fusions := request_fields.pop("fusions")) is not None:
        request_fields["fusions"] = _parts(fusions)
    engine = {name: value for name, value in engine.items() if value is not None}
    request_fields["framework_args"] = tuple(shlex.split(request_fields.pop("framework_args") or ""))
    return {**request_fields, "engine": engine, "offload": offload}


def _parts(text: str) -> tuple[str, ...]:
    parts = () if text == "none" else tuple(text.split(","))
    if unknown := [part for part in parts if part not in typing.get_args(Fusion)]:
        raise InputError(
            f"--fusions takes {', '.join(typing.get_args(Fusion))}, several with commas, or none; got "
            f"{shortened(unknown[0])!r}"
        )
    return parts


def _merged(fields: dict[str, Any], from_recipe: FromRecipe, explicit: set[str]) -> dict[str, Any]:
    """The recipe's fields, unless the command line says otherwise."""
    engine = {**from_recipe.fields["engine"], **fields["engine"]}
    merged = {**fields, **{name: value for name, value in from_recipe.fields.items() if name not in explicit}}
    if "prompt_tokens" not in explicit and from_recipe.longest_prompt:
        merged["prompt_tokens"] = str(from_recipe.longest_prompt)
    return {**merged, "engine": engine}


def _check_response(fields: dict[str, Any], from_recipe: FromRecipe | None) -> None:
    bound_tokens = from_recipe.longest_response if from_recipe else None
    if fields.get("response") is None:
        bound = f"; the recipe bounds them by {bound_tokens:,} tokens, and says no mean" if bound_tokens else ""
        example = (
            f"lognormal:mean={bound_tokens // 3},p99={bound_tokens},max={bound_tokens}" if bound_tokens else _EXAMPLE
        )
        raise InputError(f"how long responses are decides the step{bound}; add --response, e.g. {example}")
    drawn = longest(response_lengths(fields["response"]))
    if bound_tokens and drawn > bound_tokens:
        mean, _, spread = fields["response"].partition("~")
        cut = f"use --response lognormal:mean={mean},cv={spread},max={bound_tokens}"
        raise InputError(
            f"responses have up to {drawn:,} tokens, and the recipe bounds them by {bound_tokens:,}; "
            + (cut if spread else f"end --response with max={bound_tokens}")
        )
