"""What a user asks of a search beside the cluster, and the request that is made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from presim.errors import InputError
from presim.options import RunOptions
from presim.search.knobs import CLUSTER, fields, short
from presim.search.objectives import Constraints, Work, objectives_of
from presim.search.request import Request
from presim.search.space import Space, parse_knobs
from presim.search.trials.trial import Value
from presim.search.trials.workers import cores
from presim.units import GIB

LARGE = 100_000  # points that are too many to list


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """How to search, as the command line and `presim.search` take it."""

    vary: Sequence[str] = ()  # knobs with values: tp=2,4,8 nodes=16:128
    objective: Sequence[str] = ()  # none: step time, or tokens/s/GPU where clusters or batches differ
    spare_gib: float = 0.0  # memory to keep free
    max_gpus: int | None = None
    max_days: float | None = None
    tokens: float | None = None  # to train on in all
    price_per_gpu_hour: float | Mapping[str, float] | None = None  # of every GPU, or by its id
    sampler: str = "exhaustive"
    trials: int | None = None
    seed: int = 0
    jobs: int | None = None  # processes; None: one for each CPU
    ray: str | None = None  # address of a Ray cluster to evaluate points on
    budget: float | None = None  # seconds
    study: str | None = None
    prune: Sequence[str] = ()  # rules; none: those that lose nothing
    dtype: str = "bfloat16"
    space: str | None = None  # of a command: knobs and constraints of a framework, by name or as a TOML file
    confirm: int = 0  # so many of the best plans are captured
    framework: str = "auto"  # on which framework; auto: the first that can express a plan


def request_of(
    subject: str, asked: Asked, options: RunOptions, space: Space, *, graph: bytes = b"", command: Sequence[str] = ()
) -> Request:
    """The request over a space of a model's plans (``graph``) or of a command's arguments.

    Raises:
        InputError: the space is too large to list, or a number or a price cannot be.
    """
    if asked.jobs is not None and asked.jobs < 1:
        raise InputError(f"--jobs {asked.jobs}: a search needs at least one process")
    if asked.sampler == "exhaustive" and len(space) > LARGE:
        raise InputError(
            f"the space has {len(space):,} points, more than the {LARGE:,} that are searched one by one: fix knobs, "
            "or name a sampler, e.g. --sampler tpe --trials 500"
        )
    work = Work(asked.tokens, asked.price_per_gpu_hour)
    _check_prices(work, [str(gpu) for gpu in space.varied.get("gpu", (options.gpu,)) if gpu])
    return Request(
        subject=subject,
        space=space,
        objectives=objectives_of(asked.objective or [_default_objective(space)], work),
        work=work,
        constraints=Constraints(int(asked.spare_gib * GIB), asked.max_gpus, asked.max_days),
        options={key: value for key, value in dataclasses.asdict(options).items() if value is not None},
        graph=graph,
        command=command,
        strategy=asked.sampler,
        trials=asked.trials,
        seed=asked.seed,
        jobs=asked.jobs or (0 if asked.ray else cores()),
        ray=asked.ray,
        budget_s=asked.budget,
        study=asked.study,
        prune=asked.prune,
    )


def _check_prices(work: Work, gpus: Sequence[str]) -> None:
    """Each GPU of the space has a price, where prices are told by GPU."""
    from presim.hardware import catalogue

    for name in gpus if isinstance(work.price_per_gpu_hour, Mapping) else ():
        gpu = catalogue.gpu(name).id
        if work.price(gpu) is None:
            raise InputError(f"--price-per-gpu-hour has no price of {gpu}, which is searched: add {gpu}=…")


def _default_objective(space: Space) -> str:
    """Step times compare only where all points do the same work on as many GPUs."""
    same = "global_batch" in space.fixed and not any(name in space.varied for name in CLUSTER)
    return "step_time" if same else "tokens_per_s_per_gpu"


def said_knobs(given: Mapping[str, str | None]) -> tuple[dict[str, Value], list[str]]:
    """Options of knobs: those with one value, and those with several as `--vary` would say them.

    Raises:
        InputError: the installed plans do not have such a knob, or not such a value.
    """
    fixed: dict[str, Value] = {}
    several: list[str] = []
    for name, text in given.items():
        if text is None:
            continue
        if name not in fields() and name != "global_batch":
            raise InputError(f"composed plans have no {short(name)}: leave out --{short(name)}")
        values = parse_knobs([f"{name}={text}"])[name]
        if len(values) == 1:
            fixed[name] = values[0]
        else:
            several.append(f"{name}={text}")
    return fixed, several
