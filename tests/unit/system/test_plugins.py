"""Plug-ins are found by their entry points, and the documentation's example works once it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from presim import hardware
from presim.cost import estimator_conformance
from presim.cost.collectives.network_model import Transfer
from presim.cost.collectives.network_models import collective_models
from presim.cost.estimators import estimators
from presim.errors import InputError
from presim.hardware import choose_cluster
from presim.system.plugins import factories
from presim.trace.schema import Group
from presim.trace.signatures import Attention, Collective, Gemm
from support.packages import install

PAGE = Path(__file__).parents[3] / "docs" / "extend" / "prices.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's package, installed for one test."""
    text = PAGE.read_text()
    declared = text.partition("```toml\n")[2].partition("```")[0].replace("project.entry-points.", "")
    install(tmp_path, declared.replace('"', ""))
    (tmp_path / "my_prices.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def test_the_estimator_of_the_documentation_is_asked_first_for_what_it_knows(example: None) -> None:
    gpu = hardware.gpu("h100-sxm")
    attention = Attention("forward", 1, 32, 32, 4096, 4096, 128, 128, False, "bfloat16", "flash")
    product = Gemm(m=4096, n=4096, k=4096, batch=1, dtype="bfloat16")
    mine, *others = estimators(gpu)
    assert mine.name == "my attention"
    estimator_conformance.check_answers(mine, [attention, product])
    estimator_conformance.check_roofline(mine, attention, gpu)
    assert mine.price([product]) == [None]
    assert [other.name for other in others] == [other.name for other in estimators(hardware.gpu("h200"))]


def test_the_collective_model_of_the_documentation_is_asked_before_presims(example: None) -> None:
    cluster = choose_cluster(gpu="h100-sxm")
    mine = collective_models(cluster)[0]
    pair = Group("all", (0, 1), 2)
    one, other, unknown = (Transfer(Collective(kind, 8, "uint8", 0), pair) for kind in ("send", "recv", "all_reduce"))
    alone, none = estimator_conformance.check_transfers(mine, [one, unknown], cluster)
    assert alone is not None
    assert none is None
    beside, again = estimator_conformance.check_transfers(mine, [one, other], cluster)
    assert beside == again
    assert beside is not None
    assert beside.duration_ns == 2 * alone.duration_ns


def test_a_plug_in_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "[presim.estimators]\nexample = no_such_module:make\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(InputError, match=r"^the plug-in 'example' \(no_such_module:make\) of presim.estimators cannot"):
        factories("presim.estimators")
