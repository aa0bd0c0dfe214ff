"""All providers of runs: presim's own recipes, and those of installed packages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from presim.studies.validation.commands import Commands
from presim.studies.validation.runs import GROUP, CaseProvider, Providers, Settings
from presim.system import plugins


@contextlib.contextmanager
def open_providers(settings: Settings) -> Iterator[Providers]:
    """All installed providers. They are closed afterwards."""
    with contextlib.ExitStack() as stack:
        providers: list[CaseProvider] = [
            Commands(settings),
            *(make(settings) for make in plugins.factories(GROUP).values()),
        ]
        for provider in providers:
            stack.callback(provider.close)
        yield Providers(tuple(providers))
