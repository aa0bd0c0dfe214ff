"""A pytest plug-in: the fixture ``presim_job`` predicts a job within a test and checks its limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from presim.result import Result


class PresimJob(Protocol):
    """What the fixture is: words of ``presim run``, and limits by keyword."""

    def __call__(self, *words: str, **limits: float) -> Result:
        """Predict; fail the test where a limit is broken or no prediction stands."""
        ...


@pytest.fixture
def presim_job(request: pytest.FixtureRequest) -> PresimJob:
    """Predict a job: ``presim_job("--gpu", "h100-sxm", "train.py", step_time_s=1.3, memory_GiB=70)``.

    The words are those of ``presim run``, the limits those of ``presim gate``. The command runs in the folder of the
    test's file. Returns the result.
    """

    def predict(*words: str, **limits: float) -> Result:
        from presim.studies.gate import jobs
        from presim.studies.gate.budget_check import verdict
        from presim.studies.gate.budget_files import LIMITS, JobBudget
        from presim.studies.gate.text import sentences
        from presim.system.files import to_type

        if unknown := sorted(set(limits) - set(LIMITS)):
            pytest.fail(f"no limit is called {unknown[0]}; there are {', '.join(LIMITS)}", pytrace=False)
        budget = to_type({"name": request.node.name, "run": words, **limits}, JobBudget)
        result, failure = jobs.predict(budget, Path(request.path).parent)
        judged = verdict(budget, result, failure, None)
        if not judged.passed or result is None:
            pytest.fail(
                "; ".join(sentence for sentence, is_within in sentences(judged) if not is_within), pytrace=False
            )
        return result

    return predict
