"""Options of a search, and the checks and defaults that all kinds of searches share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.planner.knobs import CLUSTER, fields, short
from presim.planner.objectives import Constraints, Work, objectives_of
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space, parse_knobs
from presim.planner.trials.trial import Value
from presim.planner.trials.worker_pool import cores
from presim.units import GIB

LARGE = 100_000  # points that are too many to list


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search, as the command line and `presim.planner` accept them."""

    vary: Sequence[str] = ()  # knobs with values: tp=2,4,8 nodes=16:128
    objective: Sequence[str] = ()  # empty: step time, or tokens/s/GPU if clusters or batches vary
    spare_gib: float = 0.0  # memory to keep free
    max_gpus: int | None = None
    max_days: float | None = None
    tokens: float | None = None  # total tokens to train on
    price_per_gpu_hour: float | Mapping[str, float] | None = None  # one price, or prices by GPU id
    sampler: str = "exhaustive"
    trials: int | None = None
    seed: int = 0
    jobs: int | None = None  # worker processes; None: one per CPU
    ray: str | None = None  # address of a Ray cluster to evaluate points on
    budget: float | None = None  # seconds
    study: str | None = None
    prune: Sequence[str] = ()  # rules; empty: the lossless ones
    gap_percent: float = 1.0  # of the step time, that a plan may save without being simulated; 0: none
    dtype: str = "bfloat16"
    space: str | None = None  # space file for a command, by name or path: knobs and constraints of a framework
    confirm: int = 0  # number of best plans to capture
    capture_each: bool = False  # capture a command at each point, also where points follow from captures of others
    # Framework for these captures; auto: the first that can express a plan. Without them, the framework whose captures
    # price the best plans, unless it is auto.
    framework: str = "auto"
    framework_plans: int | None = None  # number of plans to price so; None: 8, or none with ``confirm``
    precision: str | None = None  # of the framework's captures; None: bf16
    framework_args: str | None = None  # the framework's own options, as one line


def request_of(
    subject: str,
    settings: SearchOptions,
    options: RunOptions,
    space: Space,
    *,
    graph: bytes = b"",
    command: Sequence[str] = (),
) -> SearchRequest:
    """The request over a space of a model's plans (``graph``) or of a command's arguments.

    Raises:
        InputError: the space is too large to list, or a number or a price cannot be.
    """
    if settings.jobs is not None and settings.jobs < 1:
        raise InputError(f"--jobs {settings.jobs}: a search needs at least one process")
    if settings.sampler == "exhaustive" and command and len(space) > LARGE:
        raise InputError(too_many(f"{len(space):,} points, more"))
    work = Work(settings.tokens, settings.price_per_gpu_hour)
    _check_prices(work, [str(gpu) for gpu in space.varied.get("gpu", (options.gpu,)) if gpu])
    return SearchRequest(
        subject=subject,
        space=space,
        objectives=objectives_of(settings.objective or [_default_objective(space)], work),
        work=work,
        constraints=Constraints(int(settings.spare_gib * GIB), settings.max_gpus, settings.max_days),
        options={key: value for key, value in dataclasses.asdict(options).items() if value is not None},
        graph=graph,
        command=command,
        strategy=settings.sampler,
        trials=settings.trials,
        seed=settings.seed,
        jobs=settings.jobs or (0 if settings.ray else cores()),
        ray=settings.ray,
        budget_s=settings.budget,
        study=settings.study,
        prune=settings.prune,
        gap_percent=settings.gap_percent,
        extends=not settings.capture_each,
    )


def too_many(points: str) -> str:
    """The sentence on a space that is too large to list."""
    return (
        f"the space has {points} than the {LARGE:,} that an exhaustive search evaluates: fix knobs, or name a "
        "sampler, e.g. --sampler tpe --trials 500"
    )


def _check_prices(work: Work, gpus: Sequence[str]) -> None:
    """Check that prices by GPU cover every GPU of the space."""
    from presim.hardware import catalogue

    for name in gpus if isinstance(work.price_per_gpu_hour, Mapping) else ():
        gpu = catalogue.gpu(name).id
        if work.price(gpu) is None:
            raise InputError(f"--price-per-gpu-hour has no price for {gpu}, which is part of the search: add {gpu}=…")


def _default_objective(space: Space) -> str:
    """Step time if all points do the same work on equally many GPUs, else tokens/s/GPU."""
    same = "global_batch" in space.fixed and not any(name in space.varied for name in CLUSTER)
    return "step_time" if same else "tokens_per_s_per_gpu"


def knob_options(options: Mapping[str, str | None]) -> tuple[dict[str, Value], list[str]]:
    """Split knob options into fixed values and words for `--vary` (options with several values).

    Raises:
        InputError: plans do not have the knob, or not the value.
    """
    fixed: dict[str, Value] = {}
    several: list[str] = []
    for name, text in options.items():
        if text is None:
            continue
        if name not in fields() and name != "global_batch":
            raise InputError(f"composed plans have no knob {short(name)}: leave out --{short(name)}")
        values = parse_knobs([f"{name}={text}"])[name]
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            several.append(f"{name}={text}")
    return fixed, several
