"""The interface of a case that can be predicted, and the plug-ins that prepare cases without a command.

A plug-in registers a `Factory` in the entry-point group ``presim.cases``. Plug-ins are asked in the order of their
names, after presim's own `presim.validation.commands`. A plug-in raises `NotMineError` for a case that it does not
know, so that the next one is asked, and `CannotBuildError` for a case that it knows and cannot build.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from presim import plugins
from presim.engine.options import Options
from presim.hardware.cluster import Cluster
from presim.pipeline import Evaluation
from presim.trace.schema import Trace
from presim.validation.cases import CannotBuildError, Case

GROUP = "presim.cases"
_NOBODY = (
    "the case names neither a command nor a saved job: fill one of the columns command and job "
    "(published runs need a package of planners: pip install ./validation in presim's checkout)"
)


class NotMineError(CannotBuildError):
    """This provider does not know such cases; another one may."""


class Run(Protocol):
    """A case that is ready to be captured, priced and simulated."""

    @property
    def cluster(self) -> Cluster:
        """The cluster to predict."""
        ...

    @property
    def what(self) -> str:
        """What fails when the program fails: "recipe", "command" or "saved job"."""
        ...

    def on(self, cluster: Cluster) -> Self:
        """The same run on another cluster."""
        ...

    def traces(self) -> Sequence[Trace]:
        """The traces of the ranks that are captured, ascending by rank; captured at the first call.

        Raises:
            CaptureError: the program cannot be captured.
            InputError: the case names something that is not there.
        """
        ...

    def stands_for(self) -> Mapping[int, Sequence[int]]:
        """Captured rank -> the other ranks that do the same, as far as that is known."""
        ...

    def evaluate(self, traces: Sequence[Trace], options: Options | None) -> Evaluation:
        """Price and simulate the traces."""
        ...

    def step_s(self, traces: Sequence[Trace], found: Evaluation) -> float | None:
        """Seconds of the step that was measured; None: no step was completed."""
        ...


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the command line passes to plug-ins."""

    recipes: Path | None = None  # folder of scripts that cases are built from; None: the plug-in's own
    captures: Path | None = None  # folder that keeps captures; None: the user's cache, where they can be kept safely


class CaseProvider(Protocol):
    """Prepares cases. Instances are pickled into worker processes."""

    @property
    def sources_of_tests(self) -> Collection[str]:
        """Sources whose models are test cases, one a row; the report's table by model leaves them out."""
        ...

    def prepare(self, case: Case) -> Run:
        """The run of a case.

        Raises:
            NotMineError: this provider does not know such cases.
            CannotBuildError: the case lacks something.
        """
        ...

    def close(self) -> None:
        """Free what was kept between cases."""
        ...


Factory = Callable[[Settings], CaseProvider]


@dataclasses.dataclass(frozen=True)
class Providers:
    """All providers as one: the first that knows a case prepares it."""

    each: tuple[CaseProvider, ...]

    @property
    def sources_of_tests(self) -> frozenset[str]:
        """Those of all providers."""
        return frozenset(source for provider in self.each for source in provider.sources_of_tests)

    def prepare(self, case: Case) -> Run:
        """The run of a case.

        Raises:
            CannotBuildError: no provider knows it, or it lacks something.
        """
        for provider in self.each:
            with contextlib.suppress(NotMineError):
                return provider.prepare(case)
        raise CannotBuildError(_NOBODY)


@contextlib.contextmanager
def open_providers(settings: Settings) -> Iterator[Providers]:
    """All installed providers, ready to prepare cases; closed afterwards."""
    from presim.validation.commands import Commands

    with contextlib.ExitStack() as stack:
        providers: list[CaseProvider] = [
            Commands(settings),
            *(make(settings) for make in plugins.factories(GROUP).values()),
        ]
        for provider in providers:
            stack.callback(provider.close)
        yield Providers(tuple(providers))
