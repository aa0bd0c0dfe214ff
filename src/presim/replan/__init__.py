"""A captured job under another plan, without a new capture; `presim.replan(…)` is a function as well."""

from presim.verb_packages import make_callable

make_callable(__name__)
