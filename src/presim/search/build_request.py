"""Build a search request from user input: separate knobs from fixed values, add free knobs, check everything."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from presim.errors import InputError
from presim.options import ClusterOptions, RunOptions
from presim.passes.expert_parallel import expert_count
from presim.search.knobs import CLUSTER, SHORT, Extent, fields, free, short
from presim.search.objectives import Constraints, Work, objectives_of
from presim.search.request import Request
from presim.search.space import Space, parse_knobs
from presim.search.trials.evaluator import Evaluator, placeholders
from presim.search.trials.job import Job
from presim.search.trials.trial import Value
from presim.search.trials.workers import cores
from presim.units import GIB

LARGE = 100_000  # points that are too many to list


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search, as the command line and `presim.search` accept them."""

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
    dtype: str = "bfloat16"
    space: str | None = None  # space file for a command, by name or path: knobs and constraints of a framework
    confirm: int = 0  # number of best plans to capture
    framework: str = "auto"  # framework for these captures; auto: the first that can express a plan


def request_for_model(
    model: str,
    settings: SearchOptions,
    options: RunOptions,
    fixed: Mapping[str, Value],
    command: Sequence[str] = (),
) -> Request:
    """Request for a search over a model's plans; ``fixed``: plan fields with one value; ``command`` captures the best.

    Raises:
        InputError: a knob is unknown, a value is invalid, or the model cannot be traced.
    """
    from presim.graph.take import open_graph

    varied = parse_knobs(settings.vary)
    known = {*fields(), *CLUSTER, "global_batch"}
    if unknown := [name for name in varied if name not in known]:
        raise InputError(
            f"no knob {unknown[0]!r}: plans have {', '.join(sorted(map(short, fields())))}, "
            f"clusters {', '.join(CLUSTER)}"
        )
    if twice := [name for name in varied if name in fixed]:
        raise InputError(f"{short(twice[0])} is both fixed and varied: leave out one of the two")
    _check_sequence(fixed, varied)
    graph = open_graph(model, settings.dtype)
    space = Space({**varied, **_free(graph, {**fixed, **varied}, varied, options)}, dict(fixed))
    if command and not settings.confirm:
        raise InputError(
            f"{model} and a command are two different searches: leave out one, or add --confirm 5 to capture the best "
            "plans"
        )
    request = _request(model, settings, options, space, graph=msgspec.msgpack.encode(graph))
    return dataclasses.replace(
        request, confirm=settings.confirm, framework=settings.framework, confirm_command=list(command)
    )


def request_for_command(
    command: Sequence[str], settings: SearchOptions, options: RunOptions, facts: Mapping[str, Value] | None = None
) -> Request:
    """Request for a search over a command's placeholders; ``facts``: model sizes for the constraints of a space.

    Raises:
        InputError: a placeholder has no values, or a varied knob has no placeholder.
    """
    if settings.confirm:
        raise InputError(
            "--confirm captures the best composed plans, and composing needs a model: name it, e.g. "
            "`presim search llama-8b/ --space megatron --confirm 5 -- COMMAND`, or leave out --confirm"
        )
    varied = parse_knobs(settings.vary, own=True)
    if settings.space:
        return _with_space(command, settings, options, varied, facts or {})
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
    return _request(" ".join(command), settings, options, Space(varied, {}), command=list(command))


def request_for_space(
    model: str, command: Sequence[str], settings: SearchOptions, options: RunOptions, fixed: Mapping[str, Value]
) -> Request:
    """Request for a search over a space's knobs with composed points; ``command`` captures the best of them.

    Raises:
        InputError: as `request_for_model` and `request_for_command`.
    """
    from presim.graph.take import open_graph
    from presim.search.spaces import rules
    from presim.search.spaces.file import read_space
    from presim.search.spaces.plans import as_plans

    assert settings.space is not None
    space = read_space(settings.space)
    placed = rules.placed(space, command)
    own = [*space.knobs, *placeholders(command), *CLUSTER]
    varied = parse_knobs(settings.vary, own=True)
    if unknown := [name for name in varied if name not in own]:
        raise InputError(
            f"{unknown[0]} is not a knob of the space {settings.space}, which has {', '.join(space.knobs)}"
        )
    _check_sequence(fixed, varied)
    chosen, plan_fields, unmeant = as_plans(space, rules.space_of(space, placed, varied))
    known = {**launched(command, options), **facts_of(model), **fixed}
    checked, notes = rules.rules(space, [*chosen.varied, *chosen.fixed], known)
    whole = Space(chosen.varied, {**chosen.fixed, **space.plan, **fixed})
    words = rules.words_of(space, placed, {**{name: (value,) for name, value in chosen.fixed.items()}, **chosen.varied})
    shape: dict[str, Any] = {name: known[name] for name in ("nodes", "gpus_per_node", "world_size") if name in known}
    cluster = dataclasses.replace(options, **shape) if options.cluster is None else options
    graph = msgspec.msgpack.encode(open_graph(model, settings.dtype))
    return dataclasses.replace(
        _request(" ".join(command), settings, cluster, whole, graph=graph),
        confirm=settings.confirm,
        confirm_command=placed,
        words=words,
        plan_fields=plan_fields,
        rules=checked,
        notes=[*notes, *unmeant],
    )


def _with_space(
    command: Sequence[str],
    settings: SearchOptions,
    options: RunOptions,
    varied: Mapping[str, tuple[Value, ...]],
    facts: Mapping[str, Value],
) -> Request:
    """Request for a search over a space file's knobs. A single value for a name that is no knob counts as a fact."""
    from presim.search.spaces import rules
    from presim.search.spaces.file import read_space

    assert settings.space is not None
    space = read_space(settings.space)
    placed = rules.placed(space, command)
    own = {*space.knobs, *placeholders(command), *CLUSTER}
    if several := [name for name, values in varied.items() if name not in own and len(values) > 1]:
        raise InputError(
            f"{several[0]} is not a knob of the space {settings.space}, which has {', '.join(space.knobs)}"
        )
    known = {**launched(command, options), **facts}
    known |= {name: values[0] for name, values in varied.items() if name not in own}
    chosen = rules.space_of(space, placed, varied)
    checked, notes = rules.rules(space, [*chosen.varied, *chosen.fixed], known)
    request = _request(" ".join(command), settings, options, chosen, command=placed)
    return dataclasses.replace(request, words=rules.words_of(space, placed, chosen.varied), rules=checked, notes=notes)


def launched(command: Sequence[str], options: ClusterOptions) -> dict[str, Value]:
    """World size, nodes and GPUs per node, where the launch command or the options give them."""
    from presim.capture.launchers.read import read_command

    try:
        shape = read_command(command).shape
        nodes, per_node, world = shape.nodes, shape.per_node, shape.world
    except InputError:
        nodes = per_node = world = None
    nodes, per_node = options.nodes or nodes, options.gpus_per_node or per_node
    world = options.world_size or world or (nodes * per_node if nodes and per_node else None)
    per_node = per_node or (world // nodes if world and nodes else None)
    found = {"world_size": world, "nodes": nodes, "gpus_per_node": per_node}
    return {name: value for name, value in found.items() if value}


def facts_of(model: str) -> dict[str, Value]:
    """Model sizes for the constraints of spaces, read from the model's config.json.

    Raises:
        InputError: there is no config.json, or presim cannot read the sizes of this model family.
    """
    from presim.graph.take import config_file
    from presim.launch.shapes import read_config, shapes

    config = config_file(model)
    if config is None:
        raise InputError(f"{model} has no config.json; give its sizes instead, e.g. layers=32 heads=32 kv_heads=8")
    found = shapes(read_config(config))
    return {
        "layers": found.layers,
        "heads": found.heads,
        "kv_heads": found.kv_heads,
        "hidden": found.hidden,
        "vocabulary": found.vocabulary,
        "experts": found.experts,
    }


def _check_sequence(fixed: Mapping[str, Value], varied: Mapping[str, object]) -> None:
    if "sequence" not in fixed and "sequence" not in varied:
        raise InputError("a plan needs the sequence length: use --seq, e.g. --seq 4096")


def _free(
    graph: Any, fixed: Mapping[str, object], varied: Mapping[str, Sequence[Value]], options: ClusterOptions
) -> dict[str, tuple[Value, ...]]:
    """Values for the knobs that the user neither fixed nor varied."""
    base = {name: getattr(options, name) for name in (*CLUSTER, "cluster")}
    parts = {name: list(varied[name]) for name in CLUSTER if name in varied}
    clusters = [
        Evaluator(Job(options=base)).cluster(point) for point in Space({k: tuple(v) for k, v in parts.items()}, {})
    ]
    batch = fixed.get("global_batch")
    extent = Extent(
        world=max(cluster.world_size for cluster in clusters),
        domain=max(cluster.gpus_per_node for cluster in clusters),
        layers=max((segment.count for segment in graph.segments if segment.name), default=1),
        experts=expert_count(graph),
        global_batch=batch if isinstance(batch, int) else None,
    )
    return {name: tuple(values) for name, values in free(fixed, extent).items()}


def _request(
    subject: str,
    settings: SearchOptions,
    options: RunOptions,
    space: Space,
    *,
    graph: bytes = b"",
    command: Sequence[str] = (),
) -> Request:
    if settings.jobs is not None and settings.jobs < 1:
        raise InputError(f"--jobs {settings.jobs}: a search needs at least one process")
    if settings.sampler == "exhaustive" and len(space) > LARGE:
        raise InputError(
            f"the space has {len(space):,} points, more than the {LARGE:,} that an exhaustive search evaluates: fix "
            "knobs, or name a sampler, e.g. --sampler tpe --trials 500"
        )
    work = Work(settings.tokens, settings.price_per_gpu_hour)
    _check_prices(work, [str(gpu) for gpu in space.varied.get("gpu", (options.gpu,)) if gpu])
    return Request(
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


def names_of_knobs() -> list[str]:
    """Names of plan knobs that `--vary` accepts."""
    return sorted({*SHORT, *fields()})


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
