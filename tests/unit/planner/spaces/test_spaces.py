"""Spaces of frameworks: their constraints are data, and what breaks one is illegal with its numbers."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.planner.of_command import request_for_command
from presim.planner.run_search import run
from presim.planner.search_options import SearchOptions
from presim.planner.search_request import SearchRequest
from presim.planner.spaces.constraint_facts import facts_of
from presim.planner.spaces.expression import Expression
from presim.planner.spaces.file import read_space, shipped_spaces
from presim.planner.spaces.space_request import request_for_space
from presim.planner.trials.placeholders import fill_placeholders
from presim.planner.trials.trial import Point, Value

LLAMA = {"layers": 32, "heads": 32, "kv_heads": 8, "sequence": 4096, "global_batch": 64}
TORCHRUN = ["torchrun", "--nnodes", "2", "--nproc-per-node", "8", "pretrain_gpt.py"]


def asked(*vary: str, space: str = "megatron", facts: Mapping[str, Value] = LLAMA) -> SearchRequest:
    return request_for_command(TORCHRUN, SearchOptions(space=space, vary=vary), RunOptions(gpu="h100-sxm"), facts)


def broken(request: SearchRequest, point: Point) -> list[str]:
    return [words for rule in request.rules if (words := rule.broken(point))]


def test_an_expression_is_arithmetic_and_its_numbers_are_said() -> None:
    expression = Expression("layers % (pp * vpp) == 0")
    assert not expression.holds({"layers": 32, "pp": 3, "vpp": 1})
    assert expression.with_numbers({"layers": 32, "pp": 3, "vpp": 1}) == (
        "layers % (pp * vpp) == 0, with layers = 32, pp = 3, vpp = 1"
    )


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "a.b", "a[0]", "lambda: 1", "2 ** 9", "[a]", "f'{a}'", "a if b else c", "1 << a", "a :=1"],
)
def test_what_could_run_or_grow_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="the constraint"):
        Expression(text)


def test_a_constraint_of_words_and_numbers_ends_in_a_sentence() -> None:
    with pytest.raises(InputError, match="cannot be computed"):
        Expression("a % 2 == 0 and a < 'x'").holds({"a": 2})
    with pytest.raises(InputError, match="arithmetic needs numbers, not words"):
        Expression("'%99d' % a == 'x' * a").holds({"a": 2})


@pytest.mark.parametrize("name", ["accelerate", "deepspeed", "megatron", "torchtitan"])
def test_of_every_shipped_space_some_points_are_legal_and_some_are_not(name: str) -> None:
    assert name in shipped_spaces()
    request = asked(space=name, facts={**LLAMA, "global_batch": 32})
    assert not request.notes  # all constraints can be checked
    fates = [bool(broken(request, point)) for point in itertools.islice(request.space, 3000)]
    assert any(fates)
    assert not all(fates)


def test_the_first_values_are_the_frameworks_own_and_legal() -> None:
    request = asked()
    point = {**request.space.fixed, **{name: values[0] for name, values in request.space.varied.items()}}
    assert not broken(request, point)


def test_what_does_not_divide_is_said_with_its_numbers() -> None:
    request = asked("pp=3")
    point = {**request.space.fixed, **{name: values[0] for name, values in request.space.varied.items()}}
    assert broken(request, point)[:2] == [
        "tensor, pipeline and context parallelism share the GPUs: world_size % (tp * pp * cp) == 0, with cp = 1, "
        "pp = 3, tp = 1, world_size = 16",
        "stages have as many layers each: layers % (pp * vpp) == 0, with layers = 32, pp = 3, vpp = 1",
    ]


def test_a_value_of_several_words_or_of_none_is_put_into_the_command() -> None:
    request = asked("sp=true,false", "recompute=full", "mbs=16")
    point = {**request.space.fixed, **{name: values[0] for name, values in request.space.varied.items()}}
    words = fill_placeholders(request.command, point, request.words)
    assert words[: len(TORCHRUN)] == TORCHRUN
    assert words[len(TORCHRUN) :] == [
        *("--tensor-model-parallel-size", "1", "--pipeline-model-parallel-size", "1", "--context-parallel-size", "1"),
        *("--expert-model-parallel-size", "1", "--micro-batch-size", "16", "--sequence-parallel"),
        *("--use-distributed-optimizer", "--recompute-granularity", "full", "--recompute-method", "uniform"),
        *("--recompute-num-layers", "1"),
    ]
    assert point["sp"] is True


def test_placeholders_of_the_user_s_choose_the_knobs_and_the_others_stay() -> None:
    command = [*TORCHRUN, "--tp={tp}"]
    request = request_for_command(command, SearchOptions(space="megatron"), RunOptions(gpu="h100-sxm"), LLAMA)
    assert list(request.space.varied) == ["tp"]
    assert request.space.fixed["pp"] == 1


def test_a_fact_that_nobody_says_leaves_its_constraints_unchecked_and_is_named() -> None:
    request = asked(facts={"layers": 32})
    assert (
        "Not checked, because heads is not given: attention heads are shared by tensor-parallel ranks "
        "(heads % tp == 0)." in request.notes
    )


def test_a_knob_that_a_space_lacks_and_a_value_without_words_are_refused() -> None:
    with pytest.raises(InputError, match="zero is not a knob of the space megatron, which has tp, pp"):
        asked("zero=1,2")
    with pytest.raises(InputError, match="vpp = 3 is not a value that the space has words for: use 1, 2, 4"):
        asked("vpp=3")


def test_sizes_come_from_a_model() -> None:
    assert facts_of("llama3-8b")["kv_heads"] == 8


def test_a_space_of_the_user_s_own_is_read_and_a_wrong_one_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('about = "mine"\n[knobs.a]\nvalues = [1, 2]\nwords = ["--a", "{}"]\n')
    assert list(read_space(str(path)).knobs) == ["a"]
    path.write_text('about = "mine"\n[knobs.a]\nvalues = []\n')
    with pytest.raises(InputError, match="knob a needs values"):
        read_space(str(path))
    with pytest.raises(InputError, match="no space 'none'; use one of accelerate, deepspeed, megatron, torchtitan"):
        read_space("none")


@pytest.mark.torch_cuda
def test_points_of_a_space_are_composed_and_the_best_ones_left_to_the_command(tmp_path: Path) -> None:
    sizes: dict[str, object] = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 512}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 4}
    (tmp_path / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", **sizes})
    )
    vary = ["tp=1,2,8", "pp=1", "vpp=1", "cp=1", "ep=1", "mbs=1", "sp=false", "recompute=none,selective"]
    settings = SearchOptions(space="megatron", vary=vary, confirm=2, jobs=1)
    request = request_for_space(
        str(tmp_path), TORCHRUN, settings, RunOptions(gpu="h100-sxm"), {"sequence": 256, "global_batch": 64}
    )
    assert "Composed plans do not support recompute selective: left out." in request.notes
    found = run(dataclasses.replace(request, confirm=0))
    assert {trial.point["tp"]: trial.fate for trial in found.trials} == {1: "priced", 2: "priced", 8: "illegal"}
    words = fill_placeholders(request.confirm_command, found.trial(1).point, request.words)
    assert words[: len(TORCHRUN)] == TORCHRUN
    assert " ".join(words).count("--tensor-model-parallel-size 2") == 1
    assert "--use-distributed-optimizer" in words
