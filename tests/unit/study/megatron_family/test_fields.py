"""What Megatron's configuration makes of a case."""

from __future__ import annotations

import pytest

from presim.studies.validation.cases import Case
from presim_study.megatron_family.fields import keeps_mxfp8_alone

BRIDGE = {"id": "x", "framework": "Megatron-Bridge (Megatron-Core)", "gpu": "H100", "model": "LLAMA3_70B"}


@pytest.mark.parametrize(
    ("cells", "gpu", "expected"),
    [
        ({"model": "LLAMA3.1_405B"}, "gb300", True),
        ({"model": "LLAMA3.1_405B", "precision": "FP8"}, "gb300", False),
        ({"model": "LLAMA3_70B [SFT Performance]"}, "gb300", True),
        ({"model": "LLAMA3_70B [LoRA Performance]"}, "gb300", False),
        ({"model": "LLAMA3_70B"}, "gb200", False),
        ({"model": "Nemotron_3_Super"}, "b200", True),
        ({"model": "Nemotron_3_Super"}, "gb200", False),
        ({"model": "LLAMA3_70B", "micro_batch": "2"}, "gb200", True),
        ({"model": "DeepSeekV3", "micro_batch": "2", "framework_version": "26.04 NeMo Container"}, "gb300", True),
        ({"model": "DeepSeekV3", "micro_batch": "2", "framework_version": "26.06 NeMo Container"}, "gb300", False),
    ],
)
def test_weights_are_in_mxfp8_alone_where_there_is_no_room_beside_them(
    cells: dict[str, str], gpu: str, expected: bool
) -> None:
    assert bool(keeps_mxfp8_alone(Case({**BRIDGE, "precision": "MXFP8", **cells}), gpu)) is expected
