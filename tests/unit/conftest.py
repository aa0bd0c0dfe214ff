"""What all unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from presim.composition.graph import take
from presim.composition.models import describe_model
from support.export_server import forked


@pytest.fixture(scope="session", autouse=True)
def _forked_exports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(describe_model, "run_exporter", forked(take.run_exporter))
        patch.setattr(take, "run_exporter", forked(take.run_exporter))
        yield
