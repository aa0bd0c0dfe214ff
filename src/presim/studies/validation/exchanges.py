"""Reads expert-parallel exchanges by DeepEP from rows of a table of collectives.

``collective`` is ``deepep_normal_dispatch``, ``deepep_ll_combine``, ``deepep_v2_dispatch`` and so on.
``size_semantics`` describes the exchange: ``4096 tokens, hidden 7168, top-8, 256 experts, 24 SMs, windows of 6``. In
place of the window, it or ``note`` may name DeepEP's default. A row may have a bandwidth (``algbw_gbps``) in place of a
time. The bandwidth counts one copy of each token per rank with a chosen expert on one host, else one copy per host. The
sender's own rank or host is included.
"""

from __future__ import annotations

import re

from presim.capture.adapters.deep_ep_config import default_config
from presim.hardware.cluster import Cluster
from presim.studies.validation.cases import CannotBuildError, Case
from presim.trace.collective import Collective, Routed
from presim.trace.even_routing import distinct, places_of

_LIBRARIES = {"normal": "deepep", "ll": "deepep-low-latency", "v2": "deepep-v2"}
_NAME = re.compile(r"deepep_(\w+)_(dispatch|combine)")
_EXPERTS, _SMS = 256, {"normal": 24, "ll": 0, "v2": 24}  # defaults: those of DeepSeek-V3 and of DeepEP's tests
_GROUPED = 128  # FP8 values per scaling factor of four bytes
CHIPS = {"SM90": "H100", "SM100": "B200"}  # GPUs of tables that name only the architecture


def is_exchange(case: Case) -> bool:
    """Whether a row is a DeepEP exchange."""
    return case.text("collective").startswith("deepep_")


def exchange(case: Case, cluster: Cluster) -> Collective:
    """The exchange of a row. All GPUs of the cluster take part.

    Raises:
        CannotBuildError: a part of the description is missing.
    """
    named = _NAME.fullmatch(case.text("collective"))
    if named is None or named[1] not in _LIBRARIES:
        raise CannotBuildError(f"presim has no model of {case.text('collective')!r}")
    kernels, kind = named.groups()
    text, hosts = case.text("size_semantics"), cluster.nodes
    tokens = _number(text, r"(\d+) tokens", "the number of tokens (128 tokens)")
    hidden = _number(text, r"hidden (\d+)", "the hidden size (hidden 7168)")
    experts_per_token = _number(text, r"top-(\d+)(?!\d| groups)", "the number of chosen experts (top-8)")
    experts = _number(text, r"(\d+) experts", _EXPERTS)
    in_fp8 = kind == "dispatch" and "fp8 dispatch" in case.text("dtype")
    size = hidden + hidden // _GROUPED * 4 if in_fp8 else 2 * hidden
    groups = min(_number(text, r"top-(\d+) groups", hosts), hosts)
    spread = _expected_places(groups, cluster, experts, experts_per_token) if groups < hosts else ()
    sms = _number(text, r"(\d+) SMs", _SMS[kernels])
    window = _window(f"{text} {case.text('note')}", kind, cluster.world_size, sms)
    library = _LIBRARIES[kernels] + ("-2025-02" if case.text("library_version").startswith("V1 initial") else "")
    routed = Routed(library, tokens, size, experts_per_token, experts, sms, spread, window)
    return Collective(kind, tokens * size, "float8_e4m3fn" if in_fp8 else "bfloat16", 0, routed=routed)


def _number(text: str, pattern: str, otherwise: int | str) -> int:
    """The number that a pattern finds; ``otherwise``: the default, or the name of a required number."""
    match = re.search(pattern, text)
    if match is None and isinstance(otherwise, str):
        raise CannotBuildError(f"size_semantics = {text!r} lacks {otherwise}")
    return int(match[1] if match else otherwise)


def _window(text: str, kind: str, ranks: int, sms: int) -> int:
    """Tokens per window. 0 (tuned) if the row does not state it: tables show the best of many."""
    stated = _number(text, r"(?:windows of|chunk) ?(\d+)", 0)
    if stated or "default" not in text:
        return stated
    try:
        return default_config(kind, ranks, sms).num_max_nvl_chunked_send_tokens
    except AssertionError as error:
        raise CannotBuildError(f"DeepEP has no default windows for {ranks} ranks: {error}") from None


def _expected_places(hosts: int, cluster: Cluster, experts: int, experts_per_token: int) -> tuple[float, ...]:
    """Expected places of 1, 2, 4, ... ranks that a token is sent to, if its experts are on at most ``hosts`` hosts."""
    host_experts, gpus_per_host = experts * hosts // cluster.nodes, cluster.world_size // cluster.nodes
    return tuple(
        distinct(hosts * gpus_per_host >> step, host_experts, experts_per_token)
        for step in range(gpus_per_host.bit_length())
    )


def counted_bytes(collective: Collective, cluster: Cluster) -> float:
    """Bytes that DeepEP's bandwidths count: one copy per host, or per rank on one host, including the sender's."""
    assert collective.routed is not None
    places = cluster.nodes if cluster.nodes > 1 else cluster.world_size
    return places_of(collective.routed, places, cluster.world_size) * collective.bytes
