"""What Megatron-LM's options ask for besides the decoders of its recipe: Muon, squared ReLU."""

from __future__ import annotations

from presim.studies.validation.cases import Case
from presim_study.dense_models import NEMOTRONS
from presim_study.megatron_family.flags import flags_of
from presim_study.models import published_key
from presim_study.plan import options

RECIPE = "megatron_variants.py"


def arguments(case: Case) -> tuple[str, ...]:
    """What the recipe takes besides the arguments of a decoder's; none where the case has nothing of it."""
    said = flags_of(case)
    squared = said.get("squared-relu") == "True" or published_key(case) in NEMOTRONS
    return options(squared_relu=squared, muon=muon(case))


def muon(case: Case) -> str | None:
    """How its state is kept: ``whole`` by every rank, ``by-layer`` (some layers' by each); None: another optimizer."""
    name = flags_of(case).get("optimizer", "")
    if not name.endswith("muon"):
        return None
    return "by-layer" if name == "dist_muon" or "distributed" in case.text("sharding") else "whole"
