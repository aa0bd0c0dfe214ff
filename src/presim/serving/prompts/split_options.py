"""The options of `presim prefill`, a value for each of its groups; the command line declares them with these names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from presim.errors import InputError
from presim.serving.prompts.prefill import batches
from presim.serving.serving_plan import Weights
from presim.serving.workloads import traces
from presim.serving.workloads.generate import lengths_of
from presim.system.files import names_file

_TRACE_BATCH = 65536  # tokens of a batch of a trace, unless the user says otherwise


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Over what prompts are split, and how long that may take to plan."""

    ranks: int
    tp: int = 1  # GPUs of a rank
    weights: Weights | None = None  # None: the checkpoint's own
    work_budget: str | None = None  # of time, e.g. 2h; None: ten minutes


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """The prompts: either of some lengths, or of a trace."""

    lengths: str | None = None  # tokens, as 32768,8192 or a file of numbers
    trace: Path | None = None
    requests: int | None = None  # of the trace; None: all
    budget: int | None = None  # most tokens of a batch; None: all of the lengths, 65,536 of a trace

    def batches(self) -> list[tuple[int, ...]]:
        """Tokens of the prompts, batch by batch.

        Raises:
            InputError: neither or both are given, or they cannot be read.
        """
        if self.trace is not None and self.lengths is None:
            workload = traces.read_trace(self.trace, self.requests)
            return batches(workload.prompt.tolist(), self.budget or _TRACE_BATCH)
        if self.lengths is None or self.trace is not None:
            raise InputError("give the prompts with either --lengths 32768,8192,512 or --trace FILE")
        tokens = _tokens(self.lengths)
        return batches(tokens, self.budget or max(sum(tokens), 1))


def _tokens(words: str) -> list[int]:
    """Numbers of tokens, from their words or a file."""
    if names_file(words):
        return list(lengths_of(words).drawn_from)
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise InputError(f"--lengths is 32768,8192,512 or a file of numbers, not {words!r}") from None
