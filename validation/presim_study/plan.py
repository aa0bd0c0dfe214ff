"""A plan: which recipe runs with which arguments on which cluster, so that a case becomes a capture."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Callable

from presim.errors import PresimError
from presim.hardware.catalogue import find
from presim.hardware.cluster import Cluster, Node
from presim.hardware.cluster_choice import choose_cluster
from presim.hardware.gpu_schema import Gpu
from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.gpus import gpu_of, node_of
from presim_study import dense_models
from presim_study.models import plain_name, published_key, unknown_model


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Micro-batches of a step that are captured in place of all: what each further one adds is alike."""

    first: int
    second: int
    wanted: int

    def step_time(self, first_s: float, second_s: float, busy_s: float = 0.0) -> float:
        """Seconds of the wanted step from those of the two that were captured.

        ``busy_s``: how much longer the second keeps the busiest stream of any stage at work. No micro-batch takes less
        than its part of that; the steps may differ by less, where the longer one hides communication that the shorter
        one shows.
        """
        return first_s + (self.wanted - self.first) * max(second_s - first_s, busy_s) / (self.second - self.first)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a case is built from."""

    recipe: str  # file name of the recipe
    args: tuple[str, ...]
    cluster: Cluster
    ranks: tuple[int, ...] = (0,)  # ranks to capture; the first is reported on
    steps: int = 3
    repeats: Repeats | None = None  # its second and third step have fewer micro-batches than the case's
    graphs: bool = False  # the published run's iteration is made of CUDA graphs: no kernel waits for its host
    graphed: tuple[str, ...] = ()  # modules that were CUDA graphs, where not all of it was
    fp8_attention: bool = False  # the published run's attention multiplied in FP8, which the recipe's does not
    fused_router: bool = False  # one kernel chose its experts, which the recipe cannot run
    gathers_ahead: bool = False  # it gathered the weights of virtual stages one ahead, which the recipe does not
    between_steps_ns: int = 0  # more than the recipe takes, of the reference host
    input_s: float = 0.0  # what a step has to read was not there sooner
    logged_at: int = (
        0  # the published time is the mean of step 2 to this one, of which the first warms up; 0: it is not
    )


Planner = Callable[[Case], Plan]


def cluster_of(case: Case) -> Cluster:
    """The case's cluster: as many nodes as its GPUs need.

    Tables that count a rack as one node mean hosts of what the GPU's usual node has; the rack is the catalogue's.
    """
    gpu = gpu_of(case)
    host = find(Node, find(Gpu, gpu).default_node).gpus
    gpus = case.count("n_gpus", 1)
    per_node = min(case.count("gpus_per_node", host), gpus)
    if per_node > host:
        per_node = host
    if gpus % per_node:
        raise CannotBuildError(f"{gpus} GPUs do not fill nodes of {per_node}")
    try:
        return choose_cluster(gpu=gpu, node=node_of(case, gpu), nodes=gpus // per_node, gpus_per_node=per_node)
    except PresimError as error:
        raise CannotBuildError(f"no such cluster: {error}") from None


def only_one(case: Case, *axes: str) -> None:
    """Raise where the case is parallel in a way that the recipe is not."""
    for axis in axes:
        if case.count(axis, 1) != 1:
            raise CannotBuildError(f"the recipe has no {axis.upper()}, and the case has {axis} = {case.text(axis)}")


def needs_installed(package: str) -> None:
    """Raise where what the recipe imports is not there."""
    if importlib.util.find_spec(package) is None:
        raise CannotBuildError(f"{package} is not installed: make frameworks")


def accumulation(case: Case, data_parallel: int) -> int:
    """Micro-batches of one rank in a step, from the batch sizes; the column where those do not say.

    Raises:
        CannotBuildError: they do not divide.
    """
    total, micro = case.count("global_batch", 0), case.count("micro_batch")
    if data_parallel < 1:
        raise CannotBuildError(f"n_gpus = {case.count('n_gpus', 1)} is less than what one replica takes: tp x pp x cp")
    if not total:
        return case.count("grad_accum", 1)
    if total % (micro * data_parallel):
        raise CannotBuildError(
            f"global_batch = {total} is no multiple of micro_batch x data parallel = {micro} x {data_parallel}"
        )
    return total // (micro * data_parallel)


def repeats_for(micro_batches: int, stages: int) -> Repeats | None:
    """The micro-batches to capture in place of many; None where all of them are few enough.

    A pipeline has to be full in both steps: a schedule with virtual stages fills it with almost twice as many
    micro-batches as there are stages.
    """
    first = 2 * stages
    second = first + stages * -(-4 // stages)
    return Repeats(first, second, micro_batches) if micro_batches > first + second else None


def steps_for(micro_batches: int) -> int:
    """Steps to capture: the second is steady already, and a step of many micro-batches is long to simulate."""
    return 3 if micro_batches <= 4 else 2


def options(**values: object) -> tuple[str, ...]:
    """Arguments of a recipe: ``--name value``; True is a flag, False and None are left out."""
    words: list[str] = []
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return tuple(words)


def decoder_shapes(case: Case) -> dict[str, int]:
    """Shapes of a decoder: from the cells, or of one like Llama or of an MPT that the case only names."""
    if not any(case.text(column) for column in ("n_layers", "hidden", "ffn", "n_heads")):
        known = {**dense_models.LLAMAS, **dense_models.QWENS}.get(published_key(case) or "")
        known = known or dense_models.MPTS.get(plain_name(case))
        if known is None:
            raise unknown_model(case)
        return dict(zip(("layers", "hidden", "ffn", "heads", "kv_heads", "vocab"), known, strict=True))
    heads = case.count("n_heads")
    return {
        "layers": case.count("n_layers"),
        "hidden": case.count("hidden"),
        "ffn": case.count("ffn"),
        "heads": heads,
        "kv_heads": case.count("n_kv_heads", heads),
        "vocab": case.count("vocab"),
    }


_CHECKPOINTING = {  # how tables begin what they say of it
    "none": ("none", "no", "off", "false", "disabled"),
    "selective": ("selective", "selectiveac", "sac", "op", "per op", "partial"),
    "full": ("full", "fullac", "yes", "on", "true", "all", "every layer", "every block", "enabled"),
}


def checkpointing(case: Case) -> str:
    """What is computed again: ``none``, ``selective`` (by operator) or ``full``.

    Raises:
        CannotBuildError: the case says none of these.
    """
    said = re.sub("[-_]", " ", case.text("act_ckpt").lower())
    for mode, words in _CHECKPOINTING.items():
        if any(re.match(rf"{word}\b", said) for word in words) and not said.startswith("not "):
            return mode
    raise CannotBuildError(f"act_ckpt = {case.text('act_ckpt')!r} says neither none, selective nor full")
