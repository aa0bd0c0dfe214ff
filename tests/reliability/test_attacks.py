"""Broken and attacked files end in one sentence, never in a traceback; so do numeric options and places of files.

Each kind of file is made once, broken twice, and attacked in each way; its making takes longer than ten calls. The long
run is `validation/reliability.py`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.long_cases import marked
from support.reliability import command_lines, option_attacks, place_attacks
from support.reliability.attacks import ATTACKS
from support.reliability.campaign import attack_calls, broken_calls, called, prepare
from support.reliability.kind import Kind
from support.reliability.kinds import KINDS
from support.reliability.mutate import mutate

BROKEN = 2  # files of each kind
LONG = (  # the slowest; other kinds are tables, JSON, TOML and logs too
    *("fitted cluster", "node", "profiler trace", "trained result", "budgets", "Azure's trace", "BurstGPT's trace"),
    *("served config", "benchmark", "overheads", "PyTorch's profile", "compressed profile", "groups beside Chakra's"),
    *("profile to calibrate by", "log of step times", "Mooncake's trace", "compared result"),
    *("LLMServingSim's trace", "workload", "nccl-tests log"),
)
LONG_OF_MODELS = ("graph", "study", "shown search", "composed graph")


def _name(kind: Kind) -> str:
    return kind.name


def _badly_ended(kind: Kind, folder: Path) -> dict[str, str]:
    """What is wrong with a few calls for broken files of a kind, and with one for each attack, by their seeds."""
    prepared = prepare(kind, folder / "kind")
    calls = [
        *broken_calls(prepared, range(BROKEN), folder / "bad"),
        *(call for attack in ATTACKS for call in attack_calls(prepared, attack, [0], folder / "bad")),
    ]
    return {seed: outcome.wrong for seed, outcome in calls if outcome is not None and outcome.wrong}


@pytest.mark.parametrize("kind", marked((kind for kind in KINDS if not kind.needs_torch), LONG, _name))
def test_a_broken_or_attacked_file_is_answered(kind: Kind, tmp_path: Path) -> None:
    assert not _badly_ended(kind, tmp_path)


@pytest.mark.torch_cuda
@pytest.mark.parametrize("kind", marked((kind for kind in KINDS if kind.needs_torch), LONG_OF_MODELS, _name))
def test_a_broken_or_attacked_file_about_a_model_is_answered(kind: Kind, tmp_path: Path) -> None:
    assert not _badly_ended(kind, tmp_path)


@pytest.mark.parametrize("numbers", marked([range(30), range(30, 90)], ["range(30, 90)"]))
def test_an_attack_on_a_numeric_option_is_answered(numbers: range, tmp_path: Path) -> None:
    command_lines.prepare(tmp_path)
    lines = [option_attacks.line(number) for number in numbers]
    outcomes = {" ".join(words)[:200]: called(words, tmp_path).wrong for words in lines}
    assert not {line: wrong for line, wrong in outcomes.items() if wrong}


def test_an_attack_on_the_place_of_a_file_is_answered(tmp_path: Path) -> None:
    command_lines.prepare(tmp_path)
    place_attacks.prepare(tmp_path)
    outcomes = dict(place_attacks.call(number, tmp_path) for number in range(24))
    assert not {line: outcome.wrong for line, outcome in outcomes.items() if outcome.wrong}


def test_a_seed_attacks_a_file_in_one_way() -> None:
    text = '{"name": "x", "sizes": [1, 2, 3]}\n' * 3
    for attack in ATTACKS:
        first, again = (attack.change(text, random.Random("seed")) for _ in range(2))
        assert first == again


def test_a_seed_breaks_a_file_in_one_way() -> None:
    data = b'{"a": 1, "b": [1, 2, 3]}\n' * 10
    assert mutate(data, "x") == mutate(data, "x")
    assert len({mutate(data, str(seed))[0] for seed in range(50)}) > 40
