"""The options of `presim deploy`, a value for each of its groups, and the question that they ask.

The command line declares the options with the names of these fields.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from presim.errors import InputError
from presim.serving.answer.metrics import Slo, slo_of
from presim.serving.deployments.capacity import BLOCK, MOST_REQUESTS, OfferedLoad, load_of
from presim.serving.deployments.demand import Demand, price_of, watts_of
from presim.serving.deployments.deployment_search import Space
from presim.serving.drafting import drafting_of
from presim.serving.engine_versions import EngineRelease, release_of
from presim.serving.serving_plan import Cache, Offload, Weights
from presim.serving.steps import overheads
from presim.serving.workloads.generate import WorkloadRecipe, generate, lengths_of
from presim.serving.workloads.traces import read_trace

_MOST_GPUS = 16  # of a deployment, unless the user says otherwise
_BLOCK_TOKENS = 16  # of which the prefix cache has whole blocks: the engines' default
_PROMPT, _OUTPUT = "1024", "256"  # tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpaceOptions:
    """Deployments to try."""

    gpus: tuple[str, ...]
    max_gpus: int | None = None  # of one deployment
    weights: tuple[Weights, ...] = ()  # empty: the checkpoint's, and FP8
    engines: tuple[str, ...] = ()  # as `versions.release_of` reads them; empty: vLLM
    engine_version: str | None = None  # of the only engine
    caches: tuple[Cache, ...] = ()  # empty: the checkpoint's
    speculative: Literal["mtp", "ngram"] | None = None
    draft_tokens: int = 1
    acceptance: float | None = None  # None: usual for the method
    kv_host: tuple[float, ...] = ()  # GiB of an engine for cached blocks; 0: none
    overheads: Path | None = None
    prices: tuple[str, ...] = ()
    no_disaggregation: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """The requests and their SLO."""

    prompt: str | None = None  # as in `lengths_of`; None: 1,024 tokens
    output: str | None = None  # None: 256 tokens
    trace: Path | None = None
    shared_prefix: int = 0  # tokens
    groups: int = 1
    slo: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemandOptions:
    """Limits beside the SLO."""

    rate: float | None = None  # requests/s
    total_gpus: int | None = None
    hourly: float | None = None  # money an hour
    max_power: str | None = None  # e.g. 40kW
    cost: float | None = None  # money for a million output tokens
    gpu_prices: tuple[str, ...] = ()  # GPU=PRICE of an hour, or PRICE


@dataclasses.dataclass(frozen=True)
class DeploymentQuestion:
    """A model, what it is asked to serve, and where."""

    word: str  # for the model
    space: Space
    load: OfferedLoad
    demand: Demand = dataclasses.field(default_factory=Demand)


def question_of(word: str, space: SpaceOptions, load: RequestOptions, demand: DemandOptions) -> DeploymentQuestion:
    """The question that options ask about the model that ``word`` means.

    Raises:
        InputError: an option cannot be used, or two contradict each other.
    """
    limits = demand_of(demand, space)
    return DeploymentQuestion(word, space_of(space, load, limits), load_from(load), limits)


def demand_of(options: DemandOptions, space: SpaceOptions) -> Demand:
    """The limits, for the GPUs that are considered.

    Raises:
        InputError: a limit cannot be applied, or limits contradict each other.
    """
    power_w = watts_of(options.max_power) if options.max_power else None
    prices = dict(map(price_of, options.gpu_prices))
    demand = Demand(options.rate, options.total_gpus, options.hourly, power_w, options.cost, prices)
    demand.check(space.gpus)
    if options.total_gpus and space.max_gpus and space.max_gpus > options.total_gpus:
        raise InputError(
            f"--max-gpus {space.max_gpus} for one deployment exceeds --total-gpus {options.total_gpus}; leave out one "
            "of them"
        )
    return demand


def space_of(options: SpaceOptions, load: RequestOptions, demand: Demand) -> Space:
    """What is searched.

    Raises:
        InputError: options exclude each other, or a file cannot be read.
    """
    releases = _releases(options)
    beside_vllm = [release.name for release in releases if release.name != "vllm"]
    if options.speculative and beside_vllm:
        raise InputError(f"--speculative is searched for vLLM alone: leave out --engine {beside_vllm[0]}")
    if any(options.kv_host) and beside_vllm:
        raise InputError(f"--kv-host is searched for vLLM alone: leave out --engine {beside_vllm[0]}")
    return Space(
        tuple(dict.fromkeys(options.gpus)),
        weights=options.weights or (None, "fp8"),
        most_gpus=options.max_gpus or min(demand.total_gpus or _MOST_GPUS, _MOST_GPUS),
        engines=releases,
        disaggregated=not options.no_disaggregation,
        caches=options.caches,
        drafting=drafting_of(options.speculative, options.draft_tokens, options.acceptance, None),
        offloads=tuple(Offload(gib) if gib else None for gib in dict.fromkeys(options.kv_host)) or (None,),
        cached=load.shared_prefix // _BLOCK_TOKENS * _BLOCK_TOKENS,
        overheads=overheads.read(options.overheads) if options.overheads else None,
        prices=tuple(map(Path, options.prices)),
    )


def _releases(options: SpaceOptions) -> tuple[EngineRelease, ...]:
    """The engines with their versions."""
    releases = tuple(dict.fromkeys(map(release_of, options.engines))) or (EngineRelease("vllm"),)
    if options.engine_version is None:
        return releases
    if len(releases) > 1 or releases[0].version is not None:
        words = " ".join(f"--engine {release.name}@{release.version or 'VERSION'}" for release in releases)
        raise InputError(f"--engine-version is of one engine without a version; say {words} instead")
    return (release_of(f"{releases[0].name}@{options.engine_version}"),)


def load_from(options: RequestOptions) -> OfferedLoad:
    """The requests of a simulation; they arrive at 1/s.

    Raises:
        InputError: lengths or limits cannot be read, or a trace has none of its own.
    """
    slo = slo_of([limit for words in options.slo for limit in words.split()])
    if options.trace is not None:
        return _traced(options.trace, options, slo)
    recipe = WorkloadRecipe(
        MOST_REQUESTS,
        lengths_of(options.prompt or _PROMPT),
        lengths_of(options.output or _OUTPUT),
        rate=1.0,
        shared_prefix=options.shared_prefix,
        groups=options.groups,
    )
    return load_of(generate(recipe), slo)


def _traced(trace: Path, options: RequestOptions, slo: Slo) -> OfferedLoad:
    if options.prompt or options.output or options.shared_prefix:
        raise InputError("--trace has the lengths of requests: leave out --input, --output and --shared-prefix")
    traced = load_of(read_trace(trace, None), slo, BLOCK)
    if not traced.workload.arrival_ns[-1]:
        raise InputError(f"{trace} has no times of arrival: give its lengths as --input and --output")
    return traced.redrawn(0, MOST_REQUESTS)
