"""Frameworks whose recipes are read, by name."""

from __future__ import annotations

from presim.post_training.recipes.areal_keys import AREAL
from presim.post_training.recipes.nemo_rl_keys import NEMO_RL
from presim.post_training.recipes.openrlhf_keys import OPENRLHF
from presim.post_training.recipes.rlinf_keys import RLINF
from presim.post_training.recipes.slime_keys import SLIME
from presim.post_training.recipes.trl_keys import TRL
from presim.post_training.recipes.verl_keys import VERL

FRAMEWORKS = {framework.name: framework for framework in (VERL, NEMO_RL, TRL, SLIME, OPENRLHF, AREAL, RLINF)}
