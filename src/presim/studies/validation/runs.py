"""The interface of a predictable case, and of plug-ins that prepare cases without a command.

A plug-in registers a `Factory` in the entry-point group ``presim.cases``. Plug-ins are tried in the order of their
names, after presim's own `presim.studies.validation.commands`. A plug-in raises `UnknownCaseError` for a case that it
does not know; the next one is tried then. It raises `CannotBuildError` for a case that it knows and cannot build.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from presim.engine.simulation_options import Options
from presim.evaluation.evaluate_traces import Evaluation
from presim.hardware.cluster import Cluster
from presim.studies.validation.cases import CannotBuildError, Case
from presim.trace.schema import Trace

GROUP = "presim.cases"
_NOBODY = (
    "the case names neither a command nor a saved job: fill one of the columns command and job "
    "(published runs need a package of planners: pip install ./validation in presim's checkout)"
)


class UnknownCaseError(CannotBuildError):
    """The provider does not know such cases; another one may."""


class ValidationRun(Protocol):
    """A case that can be captured, priced and simulated."""

    @property
    def cluster(self) -> Cluster:
        """The cluster to predict."""
        ...

    @property
    def what(self) -> str:
        """Name of the program in messages: "recipe", "command" or "saved job"."""
        ...

    def on(self, cluster: Cluster) -> Self:
        """The same run on another cluster."""
        ...

    def traces(self) -> Sequence[Trace]:
        """The traces of the captured ranks, ascending by rank. The first call captures them.

        Raises:
            CaptureError: the program cannot be captured.
            InputError: the case names a missing file or job.
        """
        ...

    def stands_for(self) -> Mapping[int, Sequence[int]]:
        """Captured rank -> the other ranks that it represents, where known."""
        ...

    def evaluate(self, traces: Sequence[Trace], options: Options | None) -> Evaluation:
        """Price and simulate the traces."""
        ...

    def step_s(self, traces: Sequence[Trace], evaluation: Evaluation) -> float | None:
        """Seconds of the measured step; None: no step was completed."""
        ...


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings that the command line passes to plug-ins."""

    recipes: Path | None = None  # folder of scripts for cases; None: the plug-in's own
    captures: Path | None = None  # folder that stores captures; None: the user's cache, if it is safe


class CaseProvider(Protocol):
    """Prepares cases. Instances are pickled into worker processes."""

    @property
    def sources_of_tests(self) -> Collection[str]:
        """Sources in which each row is a test case with a model of its own. The table by model omits them."""
        ...

    def prepare(self, case: Case) -> ValidationRun:
        """The run of a case.

        Raises:
            UnknownCaseError: this provider does not know such cases.
            CannotBuildError: a cell is missing or invalid.
        """
        ...

    def close(self) -> None:
        """Release resources held between cases."""
        ...


Factory = Callable[[Settings], CaseProvider]


@dataclasses.dataclass(frozen=True)
class Providers:
    """All providers as one. The first provider that knows a case prepares it."""

    providers: tuple[CaseProvider, ...]

    @property
    def sources_of_tests(self) -> frozenset[str]:
        """The sources of tests of all providers."""
        return frozenset(source for provider in self.providers for source in provider.sources_of_tests)

    def prepare(self, case: Case) -> ValidationRun:
        """The run of a case.

        Raises:
            CannotBuildError: no provider knows it, or a cell is missing.
        """
        for provider in self.providers:
            with contextlib.suppress(UnknownCaseError):
                return provider.prepare(case)
        raise CannotBuildError(_NOBODY)
