"""Parsing of value policies, and their format for the operator hook."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from presim.capture.device_values.drawn_values import lengths
from presim.capture.device_values.policies import DEFAULTS, DeviceValueOrigin, format_for_hook, parse, seeded
from presim.capture.setup.shim import SHIM_DIRECTORY
from presim.errors import InputError


def test_without_options_the_defaults_apply() -> None:
    assert parse([]) == DEFAULTS
    assert parse(["off"]) is None


def test_later_options_override_earlier_ones_and_files_count_as_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "policies"
    file.write_text("# of the second run\nloss = 3,2,1\n\nrouting=zipf:1.2  # skewed\n")
    assert parse(["loss=5", str(file), "eos=2"]) == DEFAULTS | {"loss": "3,2,1", "routing": "zipf:1.2", "eos": "2"}


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("los=2", "--values los=2: unknown key 'los'; use one of loss, gradient_norm, number, routing, token, eos, "
                  "eos_after, acceptance, attention_share, watchdog, or `off`"),
        ("eos_after=uniform:9:3", "--values eos_after=uniform:9:3: expected a number of tokens, "
                                  "uniform:LOW:HIGH[:SEED], lognormal:MEDIAN:SIGMA[:SEED] or file:PATH"),
        ("eos_after=lognormal:0:1", "--values eos_after=lognormal:0:1: expected a number of tokens, "
                                    "uniform:LOW:HIGH[:SEED], lognormal:MEDIAN:SIGMA[:SEED] or file:PATH"),
        ("acceptance=1.1", "--values acceptance=1.1: expected a probability, and perhaps a seed: 0.8 or 0.8:1"),
        ("loss=nan", "--values loss=nan: expected a number, or several numbers for consecutive losses: "
                     "3.2,2.9,2.5"),
        ("eos=-1", "--values eos=-1: expected the id of the end-of-sequence token"),
        ("routing=zipf", "--values routing=zipf: expected balanced, uniform, uniform:SEED, zipf:S, zipf:S:SEED or "
                         "file:PATH"),
    ],
)  # fmt: skip
def test_an_invalid_policy_is_refused_with_the_valid_ones(option: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        parse([option])


def test_a_missing_file_is_named() -> None:
    with pytest.raises(
        InputError, match=r"^cannot read policies\.txt: No such file or directory; give --values KEY=VALUE, or a "
    ):
        parse(["policies.txt"])


def test_invalid_loads_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "loads"
    with pytest.raises(
        InputError, match=r"/loads: No such file or directory; give --values routing=file:PATH a file with"
    ):
        parse([f"routing=file:{file}"])
    file.write_text("3 many 1")
    expected = f"^--values routing=file:{re.escape(str(file))}: expected a file with one number per expert "
    with pytest.raises(InputError, match=expected):
        parse([f"routing=file:{file}"])


@pytest.mark.parametrize("routing", ["zipf:much", "zipf:1:2:3", "uniform:-1", "balanced:2", "file:", "random"])
def test_an_unknown_routing_is_refused(routing: str) -> None:
    with pytest.raises(InputError, match=f"^--values routing={routing}: expected balanced, uniform, "):
        parse([f"routing={routing}"])


def test_expert_loads_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "loads"
    file.write_text("3, 1\n0.5 0\n")
    told = format_for_hook(DEFAULTS | {"routing": f"file:{file}"})
    assert told.splitlines()[-2:] == ["routing=loads", "loads=3.0,1.0,0.5,0.0"]
    file.write_text("0 0")
    with pytest.raises(InputError, match=r"loads must not be negative, nor all zero; got \[0.0, 0.0\]$"):
        parse([f"routing=file:{file}"])


def test_the_hook_gets_seed_and_skew_of_a_routing() -> None:
    assert "zipf=1.5\nseed=7" in format_for_hook(DEFAULTS | {"routing": "zipf:1.5:7"})
    assert "routing=uniform\nseed=0" in format_for_hook(DEFAULTS | {"routing": "uniform"})


@pytest.mark.parametrize(
    ("given", "further", "routing"),
    [
        ("uniform", 0, "uniform:0"),
        ("uniform:4", 2, "uniform:6"),
        ("zipf:1.2", 1, "zipf:1.2:1"),
        ("zipf:1.2:7", 3, "zipf:1.2:10"),
    ],
)
def test_further_draws_have_the_next_seeds(given: str, further: int, routing: str) -> None:
    assert seeded([f"routing={given}"], further) == routing


@pytest.mark.parametrize(("values", "routing"), [([], "balanced"), (["off"], "off")])
def test_a_routing_without_a_seed_has_no_further_draws(values: list[str], routing: str) -> None:
    expected = (
        f"--draws needs a random routing policy, but routing is {routing}: add --values routing=uniform, or "
        "routing=zipf:S with a skew S such as 1.0"
    )
    with pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
        seeded(values, 0)


def test_origins_match_the_shim() -> None:
    header = (SHIM_DIRECTORY / "core" / "values.h").read_text()
    numbers = {int(number) for number in re.findall(r"^  k\w+ = (\d+),", header, re.MULTILINE)}
    assert numbers == {int(origin) for origin in DeviceValueOrigin}


def test_lengths_have_the_distribution_that_is_named(tmp_path: Path) -> None:
    """Means and quantiles of 4,096 draws; the same seed gives the same lengths."""
    even, skewed = lengths("uniform:10:30"), lengths("lognormal:100:0.5:4")
    assert (min(even), max(even)) == (10, 30)
    assert sum(even) / len(even) == pytest.approx(20, rel=0.02)
    assert sorted(skewed)[len(skewed) // 2] == pytest.approx(100, rel=0.05)
    assert sum(skewed) / len(skewed) == pytest.approx(100 * math.exp(0.125), rel=0.05)
    assert skewed == lengths("lognormal:100:0.5:4") != lengths("lognormal:100:0.5:5")
    (tmp_path / "seen").write_text("3, 8\n2")
    assert lengths(f"file:{tmp_path / 'seen'}") == [3, 8, 2]
    assert "eos_after=3,8,2\n" in format_for_hook(parse([f"eos_after=file:{tmp_path / 'seen'}"]) or {})
    (tmp_path / "seen").write_text("three")
    with pytest.raises(InputError, match="expected a file with one length per sequence"):
        parse([f"eos_after=file:{tmp_path / 'seen'}"])
