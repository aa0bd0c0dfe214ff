"""A plan is answered by the framework that it needs, or by eager layers and a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from presim.composition.plan import Plan
from presim.errors import InputError
from presim.evaluation.options import EvaluationOptions
from presim.verbs import compose_plan

OPTIONS = EvaluationOptions(gpu="h100-sxm", world_size=8)
SPLIT: dict[str, Any] = {"sequence": 2048, "tensor": 2, "pipeline": 2, "global_batch": 8}


def predicted(fields: dict[str, Any], **program: Any) -> Any:
    return compose_plan.predict_plan("llama3-8b", Plan(**fields), fields.keys(), OPTIONS, **program)


def test_eager_layers_answer_for_what_megatron_does_not_take_and_a_note_says_why() -> None:
    result = predicted({**SPLIT, "passes": ("fuse-norm",)}).result
    assert "eager layers" in result.job.script
    assert any("the plan sets passes" in note for note in result.notes)


@pytest.mark.parametrize(
    ("fields", "program", "framework"),
    [
        (SPLIT, {}, "megatron"),
        (SPLIT, {"overrides": ["model.apply_rope_fusion=false"]}, "megatron"),
        ({"sequence": 2048}, {"precision": "fp8-delayed"}, "megatron"),
        ({"sequence": 2048}, {"framework": "torchtitan"}, "torchtitan"),
    ],
)
def test_a_program_is_captured_where_the_plan_or_an_option_needs_one(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], program: dict[str, Any], framework: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        compose_plan, "capture_plan_and_evaluate", lambda *_, framework, **__: asked.append(framework) or "captured"
    )
    assert predicted(fields, **program) == "captured"
    assert asked == [framework]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ({"framework": "eager", "precision": "bf16"}, "leave out --framework eager"),
        ({"dtype": "float16", "precision": "bf16"}, "use one"),
        ({"overrides": ["model.x=1"]}, "say whose"),
    ],
)
def test_options_of_the_other_way_are_refused(program: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        predicted({"sequence": 2048}, **program)


def test_what_is_asked_of_a_program_by_name_is_not_answered_by_eager_layers() -> None:
    with pytest.raises(InputError, match="the plan sets passes"):
        predicted({**SPLIT, "passes": ("fuse-norm",)}, framework="megatron")
