"""Rows of a table of collectives that are exchanges of experts' tokens by DeepEP.

``collective`` is ``deepep_normal_dispatch``, ``deepep_ll_combine``, ``deepep_v2_dispatch`` and so on, and
``size_semantics`` says in words what is exchanged: ``4096 tokens, hidden 7168, top-8, 256 experts, 24 SMs, windows of
6``; or it says, or ``note`` does, that DeepEP's default windows were used. Where a row has a bandwidth (``algbw_gbps``)
in the place of a time, it counts a copy of each token for every rank that has one of its experts, or between hosts for
every host, the sender's own among them.
"""

from __future__ import annotations

import re

from presim.capture.adapters.deep_ep_config import default_config
from presim.hardware.cluster import Cluster
from presim.trace.collective import Collective, Routed
from presim.trace.routing import distinct, places_of
from presim.validation.cases import CannotBuildError, Case

_LIBRARIES = {"normal": "deepep", "ll": "deepep-low-latency", "v2": "deepep-v2"}
_NAME = re.compile(r"deepep_(\w+)_(dispatch|combine)")
_EXPERTS, _SMS = 256, {"normal": 24, "ll": 0, "v2": 24}  # where a row does not say: DeepSeek-V3's, and DeepEP's tests'
_GROUPED = 128  # numbers in FP8 that share a factor of four bytes
CHIPS = {"SM90": "H100", "SM100": "B200"}  # tables may name the GPU by its architecture alone


def is_exchange(case: Case) -> bool:
    """Whether a row is one of these."""
    return case.text("collective").startswith("deepep_")


def exchange(case: Case, cluster: Cluster) -> Collective:
    """What a row describes; all GPUs of the cluster take part.

    Raises:
        CannotBuildError: a part of the description is missing.
    """
    named = _NAME.fullmatch(case.text("collective"))
    if named is None or named[1] not in _LIBRARIES:
        raise CannotBuildError(f"presim has no model of {case.text('collective')!r}")
    kernels, kind = named.groups()
    said, hosts = case.text("size_semantics"), cluster.nodes
    tokens = _number(said, r"(\d+) tokens", "how many tokens (128 tokens)")
    hidden = _number(said, r"hidden (\d+)", "its width (hidden 7168)")
    chosen = _number(said, r"top-(\d+)(?!\d| groups)", "how many experts (top-8)")
    experts = _number(said, r"(\d+) experts", _EXPERTS)
    in_fp8 = kind == "dispatch" and "fp8 dispatch" in case.text("dtype")
    size = hidden + hidden // _GROUPED * 4 if in_fp8 else 2 * hidden
    groups = min(_number(said, r"top-(\d+) groups", hosts), hosts)
    spread = _limited(groups, cluster, experts, chosen) if groups < hosts else ()
    sms = _number(said, r"(\d+) SMs", _SMS[kernels])
    window = _window(f"{said} {case.text('note')}", kind, cluster.world_size, sms)
    library = _LIBRARIES[kernels] + ("-2025-02" if case.text("library_version").startswith("V1 initial") else "")
    routed = Routed(library, tokens, size, chosen, experts, sms, spread, window)
    return Collective(kind, tokens * size, "float8_e4m3fn" if in_fp8 else "bfloat16", 0, routed=routed)


def _number(said: str, pattern: str, otherwise: int | str) -> int:
    """What stands there; ``otherwise``: where it does not, a number, or what is missing."""
    found = re.search(pattern, said)
    if found is None and isinstance(otherwise, str):
        raise CannotBuildError(f"size_semantics = {said!r} does not say {otherwise}")
    return int(found[1] if found else otherwise)


def _window(said: str, kind: str, ranks: int, sms: int) -> int:
    """Tokens before a rank is told; 0, as well as could be, where nothing is said: tables show the best of many."""
    stated = _number(said, r"(?:windows of|chunk) ?(\d+)", 0)
    if stated or "default" not in said:
        return stated
    try:
        return default_config(kind, ranks, sms).num_max_nvl_chunked_send_tokens
    except AssertionError as error:
        raise CannotBuildError(f"DeepEP has no default windows for {ranks} ranks: {error}") from None


def _limited(hosts: int, cluster: Cluster, experts: int, chosen: int) -> tuple[float, ...]:
    """To how many places of 1, 2, 4, ... ranks of a host a token goes that may choose experts of so many hosts only."""
    own, each = experts * hosts // cluster.nodes, cluster.world_size // cluster.nodes
    return tuple(distinct(hosts * each >> step, own, chosen) for step in range(each.bit_length()))


def counted_bytes(found: Collective, cluster: Cluster) -> float:
    """What DeepEP's bandwidths count: a copy for each host, of one host for each rank, the sender's own among them."""
    assert found.routed is not None
    places = cluster.nodes if cluster.nodes > 1 else cluster.world_size
    return places_of(found.routed, places, cluster.world_size) * found.bytes
