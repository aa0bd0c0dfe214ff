"""Import the files of a recorded run as a job, keep it, and evaluate it (`presim import`)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import ClusterOptions, EvaluationOptions
from presim.system.interrupts import noted, simulating
from presim.verbs.simulate import evaluate_saved


def import_and_evaluate(
    files: Sequence[Path],
    options: EvaluationOptions,
    out: str | os.PathLike[str],
    *,
    kind: str | None = None,
    step: int | None = None,
    missing: Literal["refuse", "same"] = "refuse",
) -> Evaluation:
    """Import files as a job into a folder, and evaluate it on the hardware that it was recorded on.

    Raises:
        InputError: the files cannot be used, or the folder cannot be written.
    """
    from presim.sources.readers import open_files
    from presim.sources.source import SourceRequest
    from presim.trace import job_store

    job_store.check_writable(out)
    recorded_on = {field.name: getattr(options, field.name) for field in dataclasses.fields(ClusterOptions)}
    with noted("nothing is written, because the files were not read to their end"):
        job = open_files(files, SourceRequest(**recorded_on, step=step, missing=missing), kind).job()
        job.save(out)
    with simulating(out):
        return evaluate_saved(out, options)
