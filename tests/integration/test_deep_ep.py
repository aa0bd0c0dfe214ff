"""Programs that use DeepEP run without the library."""

from __future__ import annotations

import pytest

from presim.evaluation.options import RunOptions
from presim.trace.even_routing import distinct
from presim.trace.signatures import Collective
from support.captured import SCRIPTS, evaluated

pytestmark = pytest.mark.torch_cuda


def test_an_exchange_is_a_collective_with_its_routing() -> None:
    """The script checks the sizes; the trace has two dispatches and two combines, and the result has a note."""
    evaluation = evaluated(
        SCRIPTS / "deep_ep_layer.py", options=RunOptions(gpu="h100-sxm", steps=0, world_size=8, ranks="0")
    )
    assert (evaluation.result.exit, evaluation.result.error) == ("ok", "")
    trace = evaluation.priced.trace
    collectives = [one for one in trace.signatures if isinstance(one, Collective)]
    routed = [(one.kind, one.routed, one.bytes) for one in collectives if one.routed is not None]
    described = sorted((kind, how.library, how.chosen, how.sms) for kind, how, _ in routed)
    assert described == [
        (kind, library, 4, 24) for kind in ("combine", "dispatch") for library in ("deepep", "hybridep")
    ]
    assert {size for _, _, size in routed} == {512 * 1024 * 2}
    windows = {(kind, how.library): how.window for kind, how, _ in routed}
    assert (windows["dispatch", "deepep"], windows["combine", "deepep"], windows["combine", "hybridep"]) == (6, 16, 0)
    spread = {how.library: how.spread for _, how, _ in routed}
    assert spread["hybridep"] == ()
    assert spread["deepep"] == pytest.approx([distinct(places, 32, 4) for places in (8, 4, 2, 1)], rel=0.05)
    assert any(note.startswith("DeepEP was replaced") for note in evaluation.result.notes)


def test_exchanges_of_decoding_send_a_token_to_each_of_its_experts() -> None:
    """The script checks the sizes; no host waits for counts."""
    options = RunOptions(gpu="h100-sxm", steps=0, world_size=8, ranks="0")
    evaluation = evaluated(SCRIPTS / "deep_ep_decoding.py", options=options)
    assert (evaluation.result.exit, evaluation.result.error) == ("ok", "")
    assert not evaluation.result.read_backs
    routed = [one for one in evaluation.priced.trace.signatures if isinstance(one, Collective) and one.routed]
    described = sorted((one.kind, one.dtype, one.routed.tokens, one.routed.token_bytes) for one in routed if one.routed)
    assert described == [
        ("combine", "bfloat16", 48, 2048),
        ("dispatch", "bfloat16", 48, 2048),
        ("dispatch", "float8_e4m3fn", 48, 1024 + 4 * 8),  # with a factor for each 128
    ]
    assert {(one.routed.library, one.routed.chosen, one.routed.sms) for one in routed if one.routed} == {
        ("deepep-low-latency", 4, 0)
    }
