"""The plug-in that prepares published runs for ``presim validate``."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

from presim.errors import InputError
from presim.studies.validation.cases import Case
from presim.studies.validation.runs import Settings, UnknownCaseError, ValidationRun
from presim_study.captures import Captures
from presim_study.planners import plan
from presim_study.runs import PlannedRun
from presim_study.tables import NOISY

_BESIDE = Path(__file__).parent.parent / "recipes"  # in a checkout
_PACKAGED = Path(__file__).parent / "recipes"  # where the package was installed


@dataclasses.dataclass(frozen=True)
class PublishedRuns:
    """Cases that follow from a recipe and the cells of a published table."""

    captures: Captures
    sources_of_tests: Collection[str] = (NOISY,)

    def prepare(self, case: Case) -> ValidationRun:
        """The run of a case.

        Raises:
            UnknownCaseError: the case names no framework.
            CannotBuildError: no recipe fits, or the case lacks what its recipe needs.
        """
        if not case.text("framework"):
            raise UnknownCaseError("published runs name their framework")
        return PlannedRun(plan(case), self.captures)

    def close(self) -> None:
        """End the processes that are kept to capture with."""
        self.captures.close()


def published_runs(settings: Settings) -> PublishedRuns:
    """The provider; recipes are the package's own unless a folder is named.

    Raises:
        InputError: there is no such folder.
    """
    return PublishedRuns(Captures(settings.recipes or recipes(), settings.captures))


def recipes() -> Path:
    """The folder of the recipes that belong to this package.

    Raises:
        InputError: the package was installed without them.
    """
    for folder in (_PACKAGED, _BESIDE):
        if folder.is_dir():
            return folder
    raise InputError("presim_study was installed without its recipes; name their folder with --recipes")
