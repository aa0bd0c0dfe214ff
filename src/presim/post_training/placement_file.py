"""Placements of roles on pools of GPUs as a TOML file."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Collection
from typing import Any, Literal

import msgspec

from presim.errors import InputError
from presim.post_training.rl_job import ScoringPool, ScoringRole
from presim.post_training.service_pools import ServicePool, ServiceRole
from presim.system.files import FormatError, convert, decode_toml, read_text, shortened
from presim.system.files.field_bounds import Count, Ratio, Seconds

Role = Literal["actor", "rollout", "reference", "critic", "reward", "environment", "judge"]
_SERVICES = typing.get_args(ServiceRole)
_SOLVE = "list pools with gpus and roles, as in the guide"


class PoolOfRoles(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """GPUs with the roles on them."""

    gpus: Count
    roles: list[str]
    seconds: str | Seconds | None = None  # of an answer of an environment or a judge, as `answer_times.answer_times`
    workers: Count | None = None  # answers at once
    turns: Count | None = None  # of each response: one more than its environment answers
    tokens: Count | None = None  # of an environment's answer


class PlacementFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """All pools, and how far generation may run ahead."""

    pools: dict[str, PoolOfRoles]
    staleness: Ratio = 0.0
    partial: bool = False


def placement_fields(path: str) -> dict[str, Any]:
    """Fields of a request by a file: the placement, the sizes of pools, and which roles there are.

    Raises:
        InputError: the file cannot be read, a role is unknown, missing or twice there, or roles are apart that presim
            simulates together.
    """
    try:
        text = read_text(path, _SOLVE)
        placement = convert(decode_toml(text), PlacementFile)
    except FormatError as error:
        raise InputError(f"{shortened(path)} is no placement: {error}; {_SOLVE}") from error
    pools_by_role = _pools_by_role(placement)
    for role in ("actor", "rollout"):
        if role not in pools_by_role:
            raise InputError(f"{shortened(path)} places no {role}; add it to the roles of a pool")
    (actor_pool,), rollout_pools = pools_by_role["actor"], pools_by_role["rollout"]
    fields: dict[str, Any] = {
        "critic": "critic" in pools_by_role,
        "reward_model": "reward" in pools_by_role,
        "reference": "reference" in pools_by_role,
        "gpus": sum(pool.gpus for pool in placement.pools.values()),
        "scoring_pools": _scoring_pools(placement, actor_pool, rollout_pools),
        "staleness": placement.staleness,
        "partial": placement.partial,
        **_service_fields(placement),
    }
    if rollout_pools == [actor_pool]:
        return {**fields, "placement": "colocated"}
    rollout_gpus = sum(placement.pools[name].gpus for name in rollout_pools if name != actor_pool)
    kind = "hybrid" if actor_pool in rollout_pools else "separate"
    return {**fields, "placement": kind, "rollout_gpus": rollout_gpus}


def _pools_by_role(placement: PlacementFile) -> dict[str, list[str]]:
    """Names of pools by role; rollouts alone may have several."""
    pools_by_role: dict[str, list[str]] = {}
    for name, pool in placement.pools.items():
        if pool.gpus < 1 and not set(pool.roles) & set(_SERVICES):
            raise InputError(f"the pool {shortened(name)!r} has {pool.gpus} GPUs; give it 1 or more")
        if not pool.roles:
            raise InputError(f"the pool {shortened(name)!r} has no roles; give it some, or leave it out")
        for role in pool.roles:
            _check_role(role)
            names = pools_by_role.setdefault(role, [])
            if names and (role != "rollout" or name in names):
                raise InputError(f"{role} is on two pools, {names[0]!r} and {name!r}; place it on one")
            names.append(name)
    actor_pools, rollout_pools = pools_by_role.get("actor", []), pools_by_role.get("rollout", [])
    if len(rollout_pools) > 1 and (len(rollout_pools) > 2 or not set(actor_pools) & set(rollout_pools)):
        raise InputError(
            f"rollouts are on {len(rollout_pools)} pools, {' and '.join(map(repr, rollout_pools))}; they may be on one "
            "pool, and on the actor's beside it"
        )
    return pools_by_role


def _scoring_pools(placement: PlacementFile, actor_pool: str, rollout_pools: list[str]) -> tuple[ScoringPool, ...]:
    """Pools without the actor and without engines."""
    pools = []
    for name, pool in placement.pools.items():
        if name == actor_pool:
            continue
        if set(pool.roles) & set(_SERVICES):
            continue
        if name not in rollout_pools:
            pools.append(ScoringPool(name, pool.gpus, tuple(typing.cast("list[ScoringRole]", pool.roles))))
        elif other_roles := [role for role in pool.roles if role != "rollout"]:
            raise InputError(
                f"the {other_roles[0]} is on the pool {name!r}, whose GPUs generate; place it on {actor_pool!r}, or on "
                "a pool without rollouts"
            )
    return tuple(pools)


def _service_fields(placement: PlacementFile) -> dict[str, Any]:
    """Fields of a request by the pools of an environment and a judge; none if there are neither."""
    fields: dict[str, Any] = {}
    pools = []
    for name, pool in placement.pools.items():
        services = [role for role in pool.roles if role in _SERVICES]
        _check_service(name, pool, services)
        if services:
            role = typing.cast("ServiceRole", services[0])
            pools.append(ServicePool(name, role, pool.gpus))
            prefix = "reward" if role == "judge" else "tool"
            values = {f"{prefix}_seconds": pool.seconds, f"{prefix}_workers": pool.workers}
            values |= {"turns": pool.turns, "tool_tokens": pool.tokens}
            fields |= {field: value for field, value in values.items() if value is not None}
    return {**fields, "service_pools": tuple(pools)} if pools else {}


def _check_service(name: str, pool: PoolOfRoles, services: list[str]) -> None:
    """Raise InputError if an environment or a judge is not alone on its pool, or fields do not suit the role."""
    values = {"seconds": pool.seconds, "workers": pool.workers, "turns": pool.turns, "tokens": pool.tokens}
    named = [field for field, value in values.items() if value is not None]
    if not services:
        if named:
            raise InputError(
                f"the pool {shortened(name)!r} has {named[0]}, a field of an environment or a judge; leave it out"
            )
        return
    if len(pool.roles) > 1:
        second_role = pool.roles[1 - pool.roles.index(services[0])]
        raise InputError(
            f"the {services[0]} is on the pool {shortened(name)!r} beside {second_role}; "
            "give it a pool of its own (gpus = 0: it has none of the cluster's)"
        )
    if services[0] == "environment" and (pool.turns or 1) < 2:
        raise InputError(
            f"the environment of the pool {shortened(name)!r} answers between turns; add turns = 2 or more"
        )
    if services[0] == "judge" and (pool.seconds is None or pool.turns or pool.tokens):
        raise InputError(
            f"the judge of the pool {shortened(name)!r} has seconds of an answer and workers, and no turns and tokens; "
            'write e.g. seconds = "3~0.5" and workers = 64'
        )


def _check_role(role: str) -> None:
    roles: Collection[str] = typing.get_args(Role)
    if role not in roles:
        matches = difflib.get_close_matches(role, sorted(roles), 1)
        advice = f"did you mean {matches[0]}?" if matches else f"use one of {', '.join(roles)}"
        raise InputError(f"no role is called {shortened(role)!r}; {advice}")
