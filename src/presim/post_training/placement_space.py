"""The placements of a search: knobs with values, and the jobs that they make of a request."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from presim.errors import InputError
from presim.hardware import Cluster
from presim.post_training.rl_job import Offloads
from presim.post_training.rl_request import RlRequest
from presim.system.files import MOST_INTEGER, shortened

Value: TypeAlias = str | int | float
_SHARES = (0.25, 0.5, 0.75)  # of the GPUs that generate
_STALENESS: tuple[Value, ...] = (0, 1, "1p", "2p", "4p")  # p: partial rollouts
_FIELDS = ("tp", "pp", "ep", "cp", "vpp", "micro_tokens", "logprob_tokens", "recompute", "offload")
_OF_ENGINE = {"rollout_tp": "tp", "gpu_memory_utilization": "gpu_memory_utilization", "max_num_seqs": "max_num_seqs"}
_WORDS = {"placement": ("colocated", "hybrid", "separate"), "recompute": ("none", "full")}
_EXAMPLES = {
    "gpu_memory_utilization": "a share above 0 and at most 1",
    "offload": "none, or parameters, optimizer and reference joined with +",
}
KNOBS = ("placement", "rollout_gpus", "staleness", "nodes", *_FIELDS, *_OF_ENGINE)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A placement of a search."""

    request: RlRequest
    cluster: Cluster
    knobs: Mapping[str, Value]  # those that vary

    @property
    def text(self) -> str:
        """The knobs in words."""
        return ", ".join(f"{name.replace('_', '-')} {value}" for name, value in self.knobs.items()) or "as given"


def candidates(request: RlRequest, cluster: Cluster, vary: Mapping[str, Sequence[Value]]) -> Iterator[Candidate]:
    """The job colocated, and on separate pools of whole nodes (of whole GPUs within one) at each staleness.

    ``vary``: values of further knobs, or of these, all of which are combined.

    Raises:
        InputError: a knob is unknown, or a value is none of it.
    """
    vary = {_knob(name): tuple(values) for name, values in vary.items()}
    for name, values in vary.items():
        _check_values(name, values)
    shapes = vary.get("placement", ("colocated", "separate"))
    varied_knobs = {
        name: values for name, values in vary.items() if name not in ("placement", "rollout_gpus", "staleness")
    }
    for combination in itertools.product(*varied_knobs.values()):
        knobs = dict(zip(varied_knobs, combination))
        pool = _cluster(cluster, knobs.get("nodes"))
        varied = _with(request, knobs)
        if "colocated" in shapes:
            fixed = dataclasses.replace(varied, placement="colocated", rollout_gpus=None, staleness=0.0, partial=False)
            yield Candidate(fixed, pool, {"placement": "colocated", **knobs})
        if "hybrid" in shapes:
            for gpus in vary.get("rollout_gpus", _pool_sizes(pool)):
                hybrid = dataclasses.replace(
                    varied, placement="hybrid", rollout_gpus=int(gpus), staleness=0.0, partial=False
                )
                yield Candidate(hybrid, pool, {"placement": "hybrid", "rollout_gpus": gpus, **knobs})
        if "separate" not in shapes:
            continue
        for gpus in vary.get("rollout_gpus", _pool_sizes(pool)):
            for word in vary.get("staleness", _STALENESS):
                staleness, is_partial = _asynchrony(word)
                separate = dataclasses.replace(
                    varied, placement="separate", rollout_gpus=int(gpus), staleness=staleness, partial=is_partial
                )
                yield Candidate(separate, pool, {"rollout_gpus": gpus, "staleness": word, **knobs})


def _knob(name: str) -> str:
    plain = name.replace("-", "_")
    if plain not in KNOBS:
        words = [knob.replace("_", "-") for knob in KNOBS]
        matches = difflib.get_close_matches(name, words, 1)
        advice = f"did you mean {matches[0]}?" if matches else f"use one of {', '.join(words)}"
        raise InputError(f"no knob of placements is called {name!r}; {advice}")
    return plain


def _check_values(name: str, values: Sequence[Value]) -> None:
    """Raise InputError on the first value that a knob does not take; staleness is checked as it is read."""
    words = _WORDS.get(name)
    for value in values:
        if name == "offload":
            is_possible = str(value) == "none" or set(str(value).split("+")) <= set(typing.get_args(Offloads))
        elif words is not None:
            is_possible = value in words
        elif name == "gpu_memory_utilization":
            is_possible = isinstance(value, int | float) and 0 < value <= 1
        else:
            is_possible = name == "staleness" or (isinstance(value, int) and 0 < value <= MOST_INTEGER)
        if not is_possible:
            example = ", ".join(words) if words else _EXAMPLES.get(name, "a whole number from 1 on")
            raise InputError(
                f"{name.replace('_', '-')}={shortened(str(value))} is no value of this knob, which takes {example}; "
                "correct --vary"
            )


def _pool_sizes(cluster: Cluster) -> list[int]:
    unit = cluster.gpus_per_node if cluster.nodes > 1 else 1
    sizes = {round(cluster.world_size * share / unit) * unit for share in _SHARES}
    return sorted(size for size in sizes if 0 < size < cluster.world_size)


def _cluster(cluster: Cluster, nodes: Value | None) -> Cluster:
    if nodes is None:
        return cluster
    count = int(nodes)
    if not 0 < count <= cluster.nodes:
        raise InputError(f"nodes={count} is none of 1 to {cluster.nodes}, which the cluster has; correct --vary")
    return msgspec.structs.replace(cluster, nodes=count)


def _asynchrony(word: Value) -> tuple[float, bool]:
    """Staleness and whether rollouts are partial: ``2`` or ``2p``."""
    text = str(word)
    try:
        return float(text.removesuffix("p")), text.endswith("p")
    except ValueError:
        raise InputError(f"staleness={text} is no number, or one with p for partial rollouts; correct --vary") from None


def _with(request: RlRequest, knobs: Mapping[str, Value]) -> RlRequest:
    fields: dict[str, Any] = {name: knobs[name] for name in _FIELDS if name in knobs}
    if "offload" in fields:
        fields["offload"] = tuple(filter(None, str(fields["offload"]).replace("none", "").split("+")))
    engine = {_OF_ENGINE[name]: knobs[name] for name in _OF_ENGINE if name in knobs}
    return dataclasses.replace(request, **fields, engine={**request.engine, **engine})
