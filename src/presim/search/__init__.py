"""Search over training plans or over the arguments of a command; `presim.search(…)` is a function as well."""

from presim.verb_packages import make_callable

make_callable(__name__)
