"""Post-training: rollouts and training in one simulation; `presim.rl(…)` is a function as well."""

from presim.verb_packages import make_callable

make_callable(__name__)
