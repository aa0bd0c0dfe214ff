"""Typed constants from `calibration/collectives.toml`."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from presim.cost.analytic.operator_constants import ConstantsOrigin
from presim.errors import InputError
from presim.hardware import constants as calibration
from presim.system.files import FormatError, convert, to_type
from presim.system.files.field_bounds import Microseconds, PositiveCount, PositiveGBps, PositiveRatio, Ratio, Share

_Kind = TypeVar("_Kind", bound=ConstantsOrigin)
# One value per NCCL protocol: LL (lowest latency), LL128, Simple (full bandwidth).
Times = tuple[Microseconds, Microseconds, Microseconds]
Efficiencies = tuple[PositiveRatio, PositiveRatio, PositiveRatio]


class ChannelConstants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Channels of large collectives, by placement."""

    one_node: dict[str, PositiveCount]  # NVLink, one node, by GPU generation
    one_node_default: PositiveCount  # generations that `one_node` does not list
    several_nodes: PositiveCount  # maximum on several nodes
    pcie: PositiveCount  # one node without NVLink
    message: PositiveCount  # maximum of send and receive
    bytes_each: PositiveCount  # a call uses at most one channel for each such block
    source: str
    date: str


class LinkConstants(ConstantsOrigin, frozen=True, kw_only=True):
    """Constants of links between the GPUs of one node."""

    base_us: Times  # duration of an empty collective of two ranks, less one step
    step_us: Times  # each further step along a ring or chain
    efficiency: Efficiencies  # share of the link's one-way bandwidth
    small_group: Share  # rings of n ranks reach `1 - small_group / n` of that
    direct_us: Times  # latency of all-to-all and send/receive, which exchange directly
    direct_step_us: Microseconds  # each further peer
    direct_efficiency: Efficiencies
    crowd: PositiveRatio = (
        1.0  # share of that with more than two ranks over PCIe, if the node lacks an exchange bandwidth
    )
    channel_GBps: tuple[PositiveGBps, PositiveGBps, PositiveGBps]  # bandwidth of one channel (a thread block)
    tree_passes: PositiveRatio = 1.0  # bytes that channels move in a tree, over those of the buffer
    ring_entry_us: Microseconds = 0.0  # each round of a ring between nodes with Simple, besides the fabric's latency
    multicast_us: Microseconds = 0.0  # NVLS (reduction in the switch); 0: not supported by the generation
    multicast_fill_us: Microseconds = 0.0  # more of it for large messages
    multicast_fill_MiB: Ratio = 8.0  # size that has half of that
    multicast_efficiency: Ratio = 0.0  # share of the link's one-way bandwidth
    multicast_channel_GBps: PositiveGBps = 30.0  # bandwidth of one channel, for the bytes of the equivalent ring


class FabricConstants(ConstantsOrigin, frozen=True, kw_only=True):
    """Constants of the network between nodes. They apply in addition to those within nodes."""

    hops: Ratio  # time of one hop of a tree with LL, relative to the fabric's latency of a small message
    small_hop: Ratio = 1.0  # share of that for messages of a few words
    entry_us: Times  # once per collective: proxies, rendezvous, flushing
    switch_entry_us: Microseconds = 0.0  # the same where the node's switch reduces and multicasts
    switch_efficiency: PositiveRatio = 0.65  # share of the NICs' bandwidth that trees between such switches reach
    switch_share: PositiveRatio = 0.93  # what the switch of a node gives while the node exchanges with others
    efficiency: Efficiencies  # share of the NICs' bandwidth
    direct_efficiency: PositiveRatio  # share of one NIC's bandwidth, for send/receive and all-to-all


class CopyingConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of warps that copy tokens one after the other. Pairs are (dispatch, combine)."""

    warps: tuple[PositiveCount, PositiveCount]  # warps per SM that sends within a host
    forwarding_warps: tuple[PositiveCount, PositiveCount]  # warps per SM that forwards between hosts
    copy_us: tuple[Microseconds, Microseconds]  # time of one warp per copy of a token
    KiB_us: tuple[Microseconds, Microseconds]  # additional time per KiB of the token
    factors_us: Microseconds  # additional time for the scaling factors of an FP8 token
    window_us: dict[str, Microseconds]  # by generation: time to notify a rank of a window
    tuned_window: tuple[PositiveCount, PositiveCount]  # default window, in tokens


class ExchangeConstants(ConstantsOrigin, frozen=True, kw_only=True):
    """Constants of a library for expert-parallel exchanges. Pairs are (dispatch, combine)."""

    base_us: Microseconds  # synchronisation of all ranks and set-up before data moves
    network_us: Microseconds  # additional latency if the ranks are in several NVLink domains
    link_efficiency: tuple[PositiveRatio, PositiveRatio]  # share of the link's one-way bandwidth, with enough SMs
    sm_GBps: tuple[PositiveGBps, PositiveGBps] = (
        math.inf,
        math.inf,
    )  # bandwidth of one SM; inf if the library occupies no SMs
    copying: CopyingConstants | None = None  # a more detailed model that replaces `sm_GBps`
    port_efficiency: PositiveRatio  # share of the NIC's bandwidth
    peer_efficiency: PositiveRatio = 1.0  # share of it towards one other host
    peer_uncertainty: Ratio = 0.0  # added to the uncertainty if there is only one other host
    # Copies of a token: one per rank or host with chosen experts; one per expert; or that, through the port also
    # within a host.
    copies: Literal["places", "experts", "experts by the port"] = "places"


@functools.cache
def table() -> dict[str, Any]:
    """The whole file as nested dicts."""
    return calibration.read("collectives.toml")


@functools.cache
def hop_shares() -> dict[str, Efficiencies]:
    """Time of a hop between nodes by algorithm, relative to one of a tree with LL."""
    return to_type(table()["hop_shares"], dict[str, Efficiencies])


@functools.cache
def channel_constants() -> ChannelConstants:
    """Constants of the number of channels."""
    return to_type(table()["channels"], ChannelConstants)


def link_constants(generation: str, nvlink: bool, overrides: Mapping[str, Any] | None = None) -> LinkConstants:
    """Constants of a GPU generation's NVLink, or of PCIe.

    ``overrides``: a cluster file's section ``collectives``; its values replace the calibrated ones.

    Raises:
        InputError: a value in ``overrides`` is invalid.
    """
    entries = table()["link"]
    name = generation if nvlink else "pcie"
    nearest = {"turing": "ampere", "ada": "ampere", "cdna3": "cdna4"}
    entry = entries.get(name) or entries[nearest.get(name, "hopper")]
    return _converted(entry, overrides, "link", LinkConstants)


def fabric_constants(kind: str, overrides: Mapping[str, Any] | None = None) -> FabricConstants:
    """Constants of a kind of fabric (infiniband, roce, efa, tcpxo, ethernet); ``overrides`` as in `link_constants`."""
    entries = table()["fabric"]
    return _converted(entries.get(kind) or entries["ethernet"], overrides, "fabric", FabricConstants)


def exchange_constants(library: str) -> ExchangeConstants:
    """Constants of a library for expert-parallel exchanges, by the name in `Routed.library`."""
    entries = table()["exchange"]
    return to_type(entries.get(library) or entries["deepep"], ExchangeConstants)


def _converted(entry: dict[str, Any], overrides: Mapping[str, Any] | None, part: str, kind: type[_Kind]) -> _Kind:
    try:
        return convert({**entry, **(overrides or {}).get(part, {})}, kind)
    except (FormatError, TypeError) as error:
        raise InputError(
            f"the cluster's [collectives.{part}] is invalid: {error}; create it again with `presim fit --nccl-tests`"
        ) from error
