"""Plans are checked before anything is composed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from presim.composition.layout import layout
from presim.composition.plan import Plan, read_plan
from presim.composition.plan_check import check
from presim.errors import InputError


def test_a_file_s_fields_give_way_to_what_is_said_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('sequence = 4096\nrecompute = "full"\n')
    assert read_plan(str(path), {"sequence": 8192}) == Plan(sequence=8192, recompute="full")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a plan needs the sequence length: use --seq, e.g. --seq 4096, or `sequence` in the plan"),
        (
            "sequence = 4096\npipelines = 2",
            "Object contains unknown field `pipelines`; a plan has sequence, micro_batch",
        ),
        ("sequence = 'long'", "Expected `int`, got `str` - at `$.sequence`"),
        ("sequence =", "is not valid TOML"),
    ],
)
def test_a_plan_that_makes_no_sense_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(sentence)):
        read_plan(str(path), {})


def test_what_does_not_divide_is_said_with_the_equation_and_what_does() -> None:
    said = "tensor = 6 does not divide 16 GPUs (16 % 6 = 4); degrees that do: 1, 2, 4, 8"
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        check(Plan(sequence=4096, tensor=6), 16)
    with pytest.raises(InputError, match=r"^micro_batch = 0 must be at least 1; correct the plan$"):
        check(Plan(sequence=4096, micro_batch=0), 16)


def test_tensor_parallel_ranks_are_neighbours() -> None:
    found = layout(Plan(sequence=1, tensor=4), 16)
    assert (found.tensor, found.data) == ((0, 1, 2, 3), (0, 4, 8, 12))


def test_a_huge_degree_is_refused_without_trying_all_below_it() -> None:
    """Trying four times as many took minutes."""
    sentence = r"^tensor = 2147483648 does not divide 4 GPUs \(4 % 2147483648 = 4\); degrees that do: 1, 2, 4$"
    with pytest.raises(InputError, match=sentence):
        check(Plan(sequence=512, tensor=1 << 31), 4)


def test_more_tokens_than_64_bits_can_count_the_bytes_of_are_refused() -> None:
    said = (
        "sequence x micro_batch = 99999999999999999999 x 2 tokens is more than 2^40 = 1099511627776; correct the plan"
    )
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        check(Plan(sequence=10**20 - 1, micro_batch=2), 4)
    check(Plan(sequence=1 << 40), 4)
