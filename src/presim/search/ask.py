"""From what a user types to a request: knobs are told apart, free ones completed, and everything checked at once."""

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


def request_for_model(
    model: str, asked: Asked, options: RunOptions, said: Mapping[str, Value], command: Sequence[str] = ()
) -> Request:
    """The search over a model's plans; ``said``: fields of the plan with one value; ``command`` confirms the best.

    Raises:
        InputError: a knob is not known, a value cannot be, or the model cannot be traced.
    """
    from presim.graph.take import open_graph

    varied = parse_knobs(asked.vary)
    known = {*fields(), *CLUSTER, "global_batch"}
    if unknown := [name for name in varied if name not in known]:
        raise InputError(
            f"no knob {unknown[0]!r}: plans have {', '.join(sorted(map(short, fields())))}, "
            f"clusters {', '.join(CLUSTER)}"
        )
    if twice := [name for name in varied if name in said]:
        raise InputError(f"{short(twice[0])} is fixed and varied at once: leave out one of the two")
    _check_sequence(said, varied)
    graph = open_graph(model, asked.dtype)
    space = Space({**varied, **_free(graph, {**said, **varied}, varied, options)}, dict(said))
    if command and not asked.confirm:
        raise InputError(f"{model} and a command are two searches: leave out one of them, or add --confirm 5")
    request = _request(model, asked, options, space, graph=msgspec.msgpack.encode(graph))
    return dataclasses.replace(request, confirm=asked.confirm, framework=asked.framework, confirm_command=list(command))


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
        return _with_space(command, asked, options, varied, facts or {})
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
    return _request(" ".join(command), asked, options, Space(varied, {}), command=list(command))


def request_for_space(
    model: str, command: Sequence[str], asked: Asked, options: RunOptions, said: Mapping[str, Value]
) -> Request:
    """The search over a space's knobs whose points are composed; ``command`` captures the best of them.

    Raises:
        InputError: as `request_for_model` and `request_for_command`.
    """
    from presim.graph.take import open_graph
    from presim.search.spaces import rules
    from presim.search.spaces.file import read_space
    from presim.search.spaces.plans import as_plans

    assert asked.space is not None
    space = read_space(asked.space)
    placed = rules.placed(space, command)
    own = [*space.knobs, *placeholders(command), *CLUSTER]
    varied = parse_knobs(asked.vary, own=True)
    if unknown := [name for name in varied if name not in own]:
        raise InputError(f"{unknown[0]} is no knob of the space {asked.space}: it has {', '.join(space.knobs)}")
    _check_sequence(said, varied)
    chosen, meant, unmeant = as_plans(space, rules.space_of(space, placed, varied))
    known = {**launched(command, options), **facts_of(model), **said}
    checked, notes = rules.rules(space, [*chosen.varied, *chosen.fixed], known)
    whole = Space(chosen.varied, {**chosen.fixed, **space.plan, **said})
    words = rules.words_of(space, placed, {**{name: (value,) for name, value in chosen.fixed.items()}, **chosen.varied})
    shape: dict[str, Any] = {name: known[name] for name in ("nodes", "gpus_per_node", "world_size") if name in known}
    cluster = dataclasses.replace(options, **shape) if options.cluster is None else options
    graph = msgspec.msgpack.encode(open_graph(model, asked.dtype))
    return dataclasses.replace(
        _request(" ".join(command), asked, cluster, whole, graph=graph),
        confirm=asked.confirm,
        confirm_command=placed,
        words=words,
        meant=meant,
        rules=checked,
        notes=[*notes, *unmeant],
    )


def _with_space(
    command: Sequence[str],
    asked: Asked,
    options: RunOptions,
    varied: Mapping[str, tuple[Value, ...]],
    facts: Mapping[str, Value],
) -> Request:
    """The search over the knobs of a space file; a knob with one value that the space lacks is a fact."""
    from presim.search.spaces import rules
    from presim.search.spaces.file import read_space

    assert asked.space is not None
    space = read_space(asked.space)
    placed = rules.placed(space, command)
    own = {*space.knobs, *placeholders(command), *CLUSTER}
    if several := [name for name, values in varied.items() if name not in own and len(values) > 1]:
        raise InputError(f"{several[0]} is no knob of the space {asked.space}: it has {', '.join(space.knobs)}")
    known = {**launched(command, options), **facts}
    known |= {name: values[0] for name, values in varied.items() if name not in own}
    chosen = rules.space_of(space, placed, varied)
    checked, notes = rules.rules(space, [*chosen.varied, *chosen.fixed], known)
    request = _request(" ".join(command), asked, options, chosen, command=placed)
    return dataclasses.replace(request, words=rules.words_of(space, placed, chosen.varied), rules=checked, notes=notes)


def launched(command: Sequence[str], options: ClusterOptions) -> dict[str, Value]:
    """GPUs, nodes and GPUs of each, as far as a launch command and the options say them."""
    from presim.capture.launchers.read import read_command

    try:
        said = read_command(command).shape
        nodes, per_node, world = said.nodes, said.per_node, said.world
    except InputError:
        nodes = per_node = world = None
    nodes, per_node = options.nodes or nodes, options.gpus_per_node or per_node
    world = options.world_size or world or (nodes * per_node if nodes and per_node else None)
    per_node = per_node or (world // nodes if world and nodes else None)
    found = {"world_size": world, "nodes": nodes, "gpus_per_node": per_node}
    return {name: value for name, value in found.items() if value}


def facts_of(model: str) -> dict[str, Value]:
    """What constraints of spaces know of a model, from its config.

    Raises:
        InputError: the model is of a family whose sizes are not read.
    """
    from presim.graph.take import config_file
    from presim.launch.shapes import read_config, shapes

    config = config_file(model)
    if config is None:
        raise InputError(f"{model} has no config.json; say its sizes instead, e.g. layers=32 heads=32 kv_heads=8")
    found = shapes(read_config(config))
    return {
        "layers": found.layers,
        "heads": found.heads,
        "kv_heads": found.kv_heads,
        "hidden": found.hidden,
        "vocabulary": found.vocabulary,
        "experts": found.experts,
    }


def _check_sequence(said: Mapping[str, Value], varied: Mapping[str, object]) -> None:
    if "sequence" not in said and "sequence" not in varied:
        raise InputError("a plan needs the tokens of a sample: use --seq, e.g. --seq 4096")


def _free(
    graph: Any, fixed: Mapping[str, object], varied: Mapping[str, Sequence[Value]], options: ClusterOptions
) -> dict[str, tuple[Value, ...]]:
    """Values for the knobs of which nothing is said."""
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
    subject: str, asked: Asked, options: RunOptions, space: Space, *, graph: bytes = b"", command: Sequence[str] = ()
) -> Request:
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


def names_of_knobs() -> list[str]:
    """Names that `--vary` knows for plans."""
    return sorted({*SHORT, *fields()})


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
