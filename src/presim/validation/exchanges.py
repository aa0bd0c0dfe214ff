"""Rows of a table of collectives that are exchanges of experts' tokens by DeepEP, as its own tables describe them.

``collective`` is ``deepep_normal_dispatch``, ``deepep_ll_combine``, ``deepep_v2_dispatch`` and so on, and
``size_semantics`` says in words what is exchanged: ``4096 tokens, hidden 7168, top-8, 256 experts, 24 SMs``. Where a
row has a bandwidth (``algbw_gbps``) in the place of a time, it counts a copy of each token for every rank that has one
of its experts, or between hosts for every host, the sender's own among them.
"""

from __future__ import annotations

import re

from presim.cost.collectives.experts import moved
from presim.cost.collectives.placement import layout_of
from presim.hardware.cluster import Cluster
from presim.trace.collective import Collective, Routed
from presim.trace.routing import distinct, places_of
from presim.trace.schema import Group
from presim.validation.cases import CannotBuildError, Case

_LIBRARIES = {"normal": "deepep", "ll": "deepep-low-latency", "v2": "deepep-v2"}
_NAME = re.compile(r"deepep_(\w+)_(dispatch|combine)")
_EXPERTS, _SMS = 256, {"normal": 24, "ll": 0, "v2": 24}  # where a row does not say: DeepSeek-V3's, and DeepEP's tests'
_HOST = 8  # GPUs, of DeepEP's tables
_GROUPED = 128  # numbers in FP8 that share a factor of four bytes
CHIPS = {"SM90": "H100", "SM100": "B200"}  # DeepEP's tables of 2026 name no more


def is_exchange(case: Case) -> bool:
    """Whether a row is one of these."""
    return case.text("collective").startswith("deepep_")


def exchange(case: Case, cluster: Cluster) -> tuple[Collective, Group]:
    """What a row describes, and who takes part.

    Raises:
        CannotBuildError: a part of the description is missing, or it is of DeepEP's first release.
    """
    named = _NAME.fullmatch(case.text("collective"))
    if named is None or named[1] not in _LIBRARIES:
        raise CannotBuildError(f"presim has no model of {case.text('collective')!r}")
    if "initial" in case.text("library_version"):
        raise CannotBuildError("the kernels of DeepEP's first release, which were slower, are not modelled")
    kernels, kind = named.groups()
    said, world = case.text("size_semantics"), cluster.world_size
    tokens = _number(said, r"(\d+) tokens", "how many tokens (128 tokens)")
    hidden = _number(said, r"hidden (\d+)", "its width (hidden 7168)")
    chosen = _number(said, r"top-(\d+)(?!\d| groups)", "how many experts (top-8)")
    experts = _number(said, r"(\d+) experts", _EXPERTS)
    in_fp8 = kind == "dispatch" and "fp8 dispatch" in case.text("dtype")
    size = hidden + hidden // _GROUPED * 4 if in_fp8 else 2 * hidden
    hosts = max(world // _HOST, 1)
    groups = min(_number(said, r"top-(\d+) groups", hosts), hosts)
    spread = _limited(groups, hosts, experts, chosen) if groups < hosts else ()
    routed = Routed(
        _LIBRARIES[kernels], tokens, size, chosen, experts, _number(said, r"(\d+) SMs", _SMS[kernels]), spread
    )
    dtype = "float8_e4m3fn" if in_fp8 else "bfloat16"
    return Collective(kind, tokens * size, dtype, 0, routed=routed), Group("experts", tuple(range(world)), world)


def _number(said: str, pattern: str, otherwise: int | str) -> int:
    """What stands there; ``otherwise``: where it does not, a number, or what is missing."""
    found = re.search(pattern, said)
    if found is None and isinstance(otherwise, str):
        raise CannotBuildError(f"size_semantics = {said!r} does not say {otherwise}")
    return int(found[1] if found else otherwise)


def _limited(groups: int, hosts: int, experts: int, chosen: int) -> tuple[float, ...]:
    """To how many places of 1, 2, 4 and 8 ranks a token goes that may choose experts of so many hosts only."""
    open_to = experts * groups // hosts
    return tuple(distinct(groups * _HOST // ranks, open_to, chosen) for ranks in (1, 2, 4, 8))


def time_us(case: Case, found: Collective, group: Group, cluster: Cluster) -> float | None:
    """The row's time, or what its bandwidth comes to.

    Raises:
        CannotBuildError: it is shorter than all links and ports together allow.
    """
    assert found.routed is not None
    layout, bandwidth = layout_of(found, group, cluster), case.number("algbw_gbps")
    measured = case.number("time_us")
    if measured is None and bandwidth:
        hosts = layout.nodes if layout.nodes > 1 else layout.ranks
        measured = places_of(found.routed, hosts, layout.ranks) * found.bytes / (bandwidth * 1e3)
    bytes_ = moved(found.routed, layout)
    least = max(bytes_.near / cluster.link_bytes_per_s, bytes_.far / cluster.network_bytes_per_s) * 1e6
    if measured is not None and measured < least:
        raise CannotBuildError(f"left out: {measured:.0f} us, and the wires alone take {least:.0f} us")
    return measured
