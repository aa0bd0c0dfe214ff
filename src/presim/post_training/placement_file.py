"""Placements of roles on pools of GPUs as a TOML file."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Collection
from typing import Any, Literal

import msgspec

from presim.errors import InputError
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
    pool_by_role = _pool_by_role(placement)
    for role in ("actor", "rollout"):
        if role not in pool_by_role:
            raise InputError(f"{shortened(path)} places no {role}; add it to the roles of a pool")
    _check_together(pool_by_role)
    fields: dict[str, Any] = {
        "critic": "critic" in pool_by_role,
        "reward_model": "reward" in pool_by_role,
        "reference": "reference" in pool_by_role,
        "gpus": sum(pool.gpus for pool in placement.pools.values()),
    }
    if pool_by_role["actor"] == pool_by_role["rollout"]:
        return {**fields, "placement": "colocated", "staleness": placement.staleness, "partial": placement.partial}
    return {
        **fields,
        "placement": "separate",
        "rollout_gpus": placement.pools[pool_by_role["rollout"]].gpus,
        "staleness": placement.staleness,
        "partial": placement.partial,
    }


def _pool_by_role(placement: PlacementFile) -> dict[str, str]:
    pool_by_role: dict[str, str] = {}
    for name, pool in placement.pools.items():
        if pool.gpus < 1:
            raise InputError(f"the pool {shortened(name)!r} has {pool.gpus} GPUs; give it 1 or more")
        if not pool.roles:
            raise InputError(f"the pool {shortened(name)!r} has no roles; give it some, or leave it out")
        for role in pool.roles:
            _check_role(role)
            if role in pool_by_role:
                raise InputError(f"{role} is on two pools, {pool_by_role[role]!r} and {name!r}; place it on one")
            pool_by_role[role] = name
    return pool_by_role


def _check_role(role: str) -> None:
    roles: Collection[str] = typing.get_args(Role)
    if role not in roles:
        matches = difflib.get_close_matches(role, sorted(roles), 1)
        advice = f"did you mean {matches[0]}?" if matches else f"use one of {', '.join(roles)}"
        raise InputError(f"no role is called {shortened(role)!r}; {advice}")


def _check_together(pool_by_role: dict[str, str]) -> None:
    for role in ("reference", "critic", "reward"):
        if pool_by_role.get(role, pool_by_role["actor"]) != pool_by_role["actor"]:
            raise InputError(
                f"the {role} is on the pool {pool_by_role[role]!r}, and presim simulates it on the actor's; place it "
                f"on {pool_by_role['actor']!r}"
            )
    pools = {*pool_by_role.values()}
    if len(pools) > 2:
        raise InputError(f"{len(pools)} pools have roles, and two are simulated; join pools")
