"""Placements of roles on pools of GPUs as a TOML file."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Collection
from typing import Any, Literal

import msgspec

from presim.errors import InputError
from presim.post_training.rl_job import ScoringPool, ScoringRole
from presim.system.files import FormatError, convert, decode_toml, read_text, shortened
from presim.system.files.field_bounds import Count, Ratio

Role = Literal["actor", "rollout", "reference", "critic", "reward"]
_SOLVE = "list pools with gpus and roles, as in the guide"


class PoolOfRoles(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """GPUs with the roles on them."""

    gpus: Count
    roles: list[str]


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
        if pool.gpus < 1:
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
        if name not in rollout_pools:
            pools.append(ScoringPool(name, pool.gpus, tuple(typing.cast("list[ScoringRole]", pool.roles))))
        elif other_roles := [role for role in pool.roles if role != "rollout"]:
            raise InputError(
                f"the {other_roles[0]} is on the pool {name!r}, whose GPUs generate; place it on {actor_pool!r}, or on "
                "a pool without rollouts"
            )
    return tuple(pools)


def _check_role(role: str) -> None:
    roles: Collection[str] = typing.get_args(Role)
    if role not in roles:
        matches = difflib.get_close_matches(role, sorted(roles), 1)
        advice = f"did you mean {matches[0]}?" if matches else f"use one of {', '.join(roles)}"
        raise InputError(f"no role is called {shortened(role)!r}; {advice}")
