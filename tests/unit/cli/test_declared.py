"""The declarations of verbs as data: forms and Python calls say what the command line says."""

from __future__ import annotations

import click
import pytest

from presim.cli.declared import Values, command_of, declarations, errors_of, option_of, python_keyword, words_of
from presim.cli.declared import values_of as values_of_words
from presim.cli.main import VERBS
from presim.errors import InputError

PLAIN = [verb for verb in VERBS if not isinstance(command_of(verb), click.Group)]
# Words of a verb that a form gives and reads back.
ROUND_TRIPS: list[tuple[str, Values]] = [
    ("compose", {"model": "llama3-8b", "gpu": "h100-sxm", "sequence": "4096", "sequence_parallel": "--no-sp"}),
    ("compose", {"model": "a model", "passes": "fuse-norm fp8-row", "cuda_graphs": True, "contention": True}),
    ("serve", {"model": "m", "gpu": "g.toml", "slo": "ttft:500 tpot:50@p90", "cuda_graphs": True, "kv_host": "2"}),
    ("search", {"words": "llama3-8b tp=1,2", "tensor": "1,2,4", "data_style": "fsdp2,ddp"}),
    ("import", {"files": "a.json 'b c.json'", "out": "job", "missing": "same"}),
    ("training", {"job": "compose-1.json", "tokens": "1e12", "elastic": True}),
    ("rl", {"words": "data.n=4", "recipe": "verl 'run a.sh'", "response": "100"}),
    ("run", {"script": "torchrun", "args": "--nproc-per-node 2 train.py --out x", "gpu": "b200", "steps": "2"}),
    ("deploy", {"model": "m", "gpus": "h100-sxm h200-sxm", "no_disaggregation": True}),
]


@pytest.mark.parametrize(("verb", "values"), ROUND_TRIPS)
def test_values_come_back_from_their_words(verb: str, values: Values) -> None:
    assert values_of_words(verb, words_of(verb, values)) == values


@pytest.mark.parametrize("verb", PLAIN)
def test_every_option_comes_back_by_itself(verb: str) -> None:
    """Whatever its type: a flag, a pair of flags, a choice, a number, several words."""
    for field in (declared for declared in declarations(verb) if declared.flag):
        values: Values = {
            field.name: True
            if field.type == "switch"
            else (field.choices or [" ".join(["7"] * max(field.num_words, 1))])[-1]
        }
        assert values_of_words(verb, words_of(verb, values)) == values, field


@pytest.mark.parametrize("verb", PLAIN)
def test_each_option_has_a_keyword_of_its_own(verb: str) -> None:
    keywords = [python_keyword(field.flag) for field in declarations(verb) if field.flag]
    assert len(set(keywords)) == len(keywords)
    assert all(keyword.isidentifier() for keyword in keywords)


def test_an_option_of_several_words_takes_no_other_option_for_one() -> None:
    with pytest.raises(InputError, match=r"^--from takes 2 words, FRAMEWORK FILE, not 1$"):
        words_of("rl", {"recipe": "verl", "response": "100"})


def test_words_that_begin_with_a_dash_are_values() -> None:
    assert words_of("compose", {"model": "-m", "nodes": "-3"}) == ["--nodes=-3", "--", "-m"]
    assert values_of_words("compose", ["--nodes=-3", "--", "-m"]) == {"model": "-m", "nodes": "-3"}


def test_errors_are_those_of_the_command_line() -> None:
    errors = errors_of("compose", {"model": "m", "nodes": "-3", "tensor": "x", "recompute": "some", "sequence": "4096"})
    assert errors == {
        "nodes": "-3 is not a number of nodes from 1 to 1,048,576",
        "tensor": "'x' is not a whole number; a parallel degree from 1 to 65,536 is expected",
        "recompute": "'some' is not one of 'none', 'full'.",
    }


def test_a_missing_argument_and_option_are_errors() -> None:
    assert set(errors_of("serve", {})) == {"model"}  # its GPU may be that of --cluster
    assert set(errors_of("deploy", {})) == {"model", "gpus"}


@pytest.mark.parametrize(
    ("sentence", "option"),
    [
        ("a plan needs the sequence length: use --seq, e.g. --seq 4096, or `sequence` in the plan", "sequence"),
        ("--price-per-gpu-hour 2 prices a whole training: add --tokens N", "price_per_gpu_hour"),
        ("tensor = 3 does not divide 16 GPUs (16 % 3 = 1); degrees that do: 1, 2, 4, 8", "tensor"),
        ("unknown GPU 'h100-sxmx': did you mean h100-sxm?", "gpu"),
        ("llama9 is no model that is known by name; did you mean llama", "model"),
        ("the disk is full", ""),
    ],
)
def test_a_sentence_belongs_to_the_option_that_it_names(sentence: str, option: str) -> None:
    assert option_of("compose", sentence, {"model": "llama9", "gpu": "h100-sxmx", "tensor": "3"}) == option


def test_words_of_another_verb_are_refused() -> None:
    with pytest.raises(InputError, match=r"presim compose: No such option"):
        values_of_words("compose", ["--no-such-option"])
    with pytest.raises(InputError, match="no verb 'nothing'"):
        declarations("nothing")


def test_an_option_of_two_words_wants_both() -> None:
    assert words_of("rl", {"recipe": "verl run.sh"}) == ["--from", "verl", "run.sh"]
    assert set(errors_of("rl", {"recipe": "verl"})) == {"recipe"}
