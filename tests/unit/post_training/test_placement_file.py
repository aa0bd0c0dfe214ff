"""Files of placements: roles on pools, or one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.errors import InputError
from presim.post_training.placement_file import placement_fields
from presim.post_training.rl_job import ScoringPool

APART = """
staleness = 2.0
partial = true
[pools.learners]
gpus = 24
roles = ["actor", "reference"]
[pools.samplers]
gpus = 8
roles = ["rollout"]
"""


def test_roles_on_two_pools(tmp_path: Path) -> None:
    file = tmp_path / "placement.toml"
    file.write_text(APART)
    assert placement_fields(str(file)) == {
        "placement": "separate", "rollout_gpus": 8, "gpus": 32, "staleness": 2.0, "partial": True, "reference": True,
        "critic": False, "reward_model": False, "scoring_pools": (),
    }  # fmt: skip


def test_roles_on_a_third_pool_and_gpus_that_switch(tmp_path: Path) -> None:
    file = tmp_path / "placement.toml"
    text = APART.replace("staleness = 2.0\npartial = true", "").replace(', "reference"', ', "rollout"')
    file.write_text(f'{text}\n[pools.scorers]\ngpus = 8\nroles = ["critic", "reference"]\n')
    fields = placement_fields(str(file))
    assert (fields["placement"], fields["rollout_gpus"], fields["gpus"]) == ("hybrid", 8, 40)
    assert fields["scoring_pools"] == (ScoringPool("scorers", 8, ("critic", "reference")),)
    assert (fields["critic"], fields["reference"], fields["reward_model"]) == (True, True, False)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (("rollout", "rolout"), "no role is called 'rolout'; did you mean rollout?"),
        (("gpus = 8", "gpus = 0"), "the pool 'samplers' has 0 GPUs; give it 1 or more"),
        (('["rollout"]', '["actor"]'), "actor is on two pools, 'learners' and 'samplers'; place it on one"),
        (('"reference"', '"actor"'), "actor is on two pools, 'learners' and 'learners'; place it on one"),
        (("actor", "critic"), "{file} places no actor; add it to the roles of a pool"),
        (
            ('"rollout"', '"rollout", "critic"'),
            "the critic is on the pool 'samplers', whose GPUs generate; place it on 'learners', or on a pool without "
            "rollouts",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(changed: tuple[str, str], sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "placement.toml"
    file.write_text(APART.replace(*changed))
    with pytest.raises(InputError) as error:
        placement_fields(str(file))
    assert str(error.value) == sentence.format(file=file)
