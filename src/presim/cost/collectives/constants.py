"""The constants of `calibration/collectives.toml`, typed."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from presim import calibration
from presim.cost.analytic.constants import Calibration
from presim.errors import InputError

_Kind = TypeVar("_Kind", bound=Calibration)
Three = tuple[float, float, float]  # NCCL's protocols: LL (lowest latency), LL128, Simple (full bandwidth)


class LinkConstants(Calibration, frozen=True, kw_only=True):
    """Between the GPUs of one node."""

    base_us: Three  # duration of an empty collective of two ranks, less one step
    step_us: Three  # of each further step along a ring or chain
    efficiency: Three  # share of the link's one-way bandwidth
    small_group: float  # rings of n ranks reach `1 - small_group / n` of that
    direct_us: Three  # all-to-all and send/receive: no steps, every pair at once
    direct_step_us: float  # of each further peer
    direct_efficiency: Three
    crowd: float = 1.0  # share of that with more than two ranks over PCIe, where the node does not say what it carries
    channel_GBps: float  # what one channel, a thread block, can move at full bandwidth
    multicast_us: float = 0.0  # NVLS: reduction in the switch; 0: the generation has none
    multicast_efficiency: float = 0.0  # in units of the equivalent ring's bandwidth
    multicast_ranks: int = 0  # from so many ranks of one node on


class FabricConstants(Calibration, frozen=True, kw_only=True):
    """Between nodes, on top of what happens within them."""

    hops: float  # time of one hop of a ring or tree, in the fabric's latency of a small message
    small_hop: float = 1.0  # share of that where the message is a few words
    entry_us: Three  # once per collective: proxies, rendezvous, flushing
    efficiency: Three  # share of the NICs' bandwidth
    direct_efficiency: float  # of one NIC, for send/receive and all-to-all


class CopyingConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Warps that copy one token after the other; pairs are of dispatch and combine."""

    warps: tuple[int, int]  # of an SM that sends on one host
    forwarding_warps: tuple[int, int]  # of an SM that passes on between hosts
    copy_us: tuple[float, float]  # of one warp, for one copy of a token
    KiB_us: tuple[float, float]  # for each KiB of it, besides
    factors_us: float  # for the factors of a token in FP8, besides
    window_us: dict[str, float]  # by generation: until a rank was told of a window
    tuned_window: tuple[int, int]  # tokens, where an exchange does not say them


class ExchangeConstants(Calibration, frozen=True, kw_only=True):
    """A library for experts' exchanges; pairs are of dispatch and combine."""

    base_us: float  # meeting of all ranks, and what happens before data moves
    network_us: float  # the same where they are in several NVLink domains, besides
    link_efficiency: tuple[float, float]  # share of the link's one-way bandwidth, with SMs enough
    sm_GBps: tuple[float, float] = (math.inf, math.inf)  # what one SM moves; not said where none is held
    copying: CopyingConstants | None = None  # in the place of that, where it is known in more detail
    port_efficiency: float  # share of the NIC's bandwidth
    peer_efficiency: float = 1.0  # share of it towards one other host
    peer_uncertainty: float = 0.0  # added to the uncertainty where there is one other host only
    copies: Literal["places", "experts", "experts by the port"] = (
        "places"  # of a token: one for each place with experts of it, or for each expert; within a host by the port too
    )


@functools.cache
def table() -> dict[str, Any]:
    """The whole file as nested dicts."""
    return calibration.read("collectives.toml")


def link_constants(generation: str, nvlink: bool, own: Mapping[str, Any] | None = None) -> LinkConstants:
    """Constants of a GPU generation's NVLink, or of PCIe; ``own``: what a cluster's file says instead, by key."""
    entries = table()["link"]
    name = generation if nvlink else "pcie"
    nearest = {"turing": "ampere", "ada": "ampere", "cdna3": "hopper", "cdna4": "hopper"}
    entry = entries.get(name) or entries[nearest.get(name, "hopper")]
    return _converted(entry, own, "link", LinkConstants)


def fabric_constants(kind: str, own: Mapping[str, Any] | None = None) -> FabricConstants:
    """Constants of a kind of fabric (infiniband, roce, efa, tcpxo, ethernet); ``own`` as in `link_constants`."""
    entries = table()["fabric"]
    return _converted(entries.get(kind) or entries["ethernet"], own, "fabric", FabricConstants)


def exchange_constants(library: str) -> ExchangeConstants:
    """Constants of a library for experts' exchanges, as `Routed.library` names it."""
    entries = table()["exchange"]
    return msgspec.convert(entries.get(library) or entries["deepep"], ExchangeConstants)


def _converted(entry: dict[str, Any], own: Mapping[str, Any] | None, part: str, kind: type[_Kind]) -> _Kind:
    said = (own or {}).get(part, {})
    try:
        return msgspec.convert({**entry, **said}, kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(
            f"the cluster's [collectives.{part}] cannot be used: {error}; make it anew with `presim fit --nccl-tests`"
        ) from error
