"""What Megatron-LM's runs of 2021 on Selene were, where a table of them does not say it.

Micro-batches and virtual stages from ``examples/sc21/run_table_1.sh`` of its repository, for table 1 of Narayanan and
others (2021), which is the picture in the repository's README of that spring.
"""

from __future__ import annotations

from collections.abc import Mapping

from presim.studies.validation.cases import Case
from presim_study.models import published_key

_SOURCES = ("sc21", "narayanan")
_RUNS: Mapping[str, tuple[int, int]] = {  # how names begin -> samples of a micro-batch, virtual stages
    "gpt17b": (16, 1),
    "gpt36b": (16, 1),
    "gpt75b": (16, 1),
    "gpt18": (8, 1),
    "gpt39": (4, 1),
    "gpt76": (2, 3),
    "gpt145": (2, 2),
    "gpt310": (1, 2),
    "gpt529": (1, 3),
    "gpt530": (1, 3),
    "gpt1008b": (1, 1),
    "gpt1t": (1, 1),
}


def completed(case: Case) -> Case:
    """Such a run with its micro-batch and its virtual stages; any other case as it is."""
    said = f"{case.text('framework')} {case.text('source')}".lower()
    key = published_key(case) or ""
    run = next((run for start, run in _RUNS.items() if key.startswith(start)), None)
    if run is None or not any(word in said for word in _SOURCES):
        return case
    micro, virtual = run
    return Case(
        {
            **case.row,
            "micro_batch": case.text("micro_batch") or str(micro),
            "vp": case.text("vp") or (str(virtual) if case.count("pp", 1) > 1 else ""),
        }
    )
