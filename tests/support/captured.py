"""Real scripts captured once per test session, and the questions that tests ask of what came out."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from presim.capture.processes.forks import Forks
from presim.capture.processes.kept_forks import KeptForks
from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import RunOptions
from presim.hardware.cluster_choice import choose_cluster
from presim.result import Result
from presim.trace.schema import Category, Kind, Phase, Trace
from presim.trace.signatures import Collective, Gemm, Signature
from presim.verbs.run import run_and_evaluate

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
SCRIPTS = ROOT / "tests" / "integration" / "scripts"
NO_IMPORTS = ROOT / "tests" / "support" / "__init__.py"


@functools.cache
def run(script: str, *args: str, gpu: str = "h100-sxm", world_size: int = 1, rank: int = 0, steps: int = 3) -> Job:
    """Capture an example or test script by name; an equal call returns the same capture."""
    path = EXAMPLES / script if (EXAMPLES / script).exists() else SCRIPTS / script
    return Job(evaluated(path, *args, options=RunOptions(gpu=gpu, world_size=world_size, rank=rank, steps=steps)))


def evaluated(script: Path, *args: str, options: RunOptions) -> Evaluation:
    """A capture whose ranks are forks of a process that is kept for other captures."""
    with mock.patch.dict(os.environ):
        os.environ.pop("PYTEST_CURRENT_TEST", None)  # ranks are forks of one process only where variables are the same
        return run_and_evaluate([str(script), *args], options, stdout=2, forks=_forks(script, options))


def _forks(script: Path, options: RunOptions) -> Forks:
    """What ranks are forks of: with the imports of a script that can be imported, else with those of PyTorch."""
    cluster = choose_cluster(gpu=options.gpu, world_size=options.world_size)
    if "__main__" not in script.read_text():
        return _PYTORCH.of(NO_IMPORTS, cluster)
    return _KEPT.of(script, cluster)


_KEPT, _PYTORCH = KeptForks(), KeptForks()
atexit.register(_KEPT.close)
atexit.register(_PYTORCH.close)


@dataclasses.dataclass(frozen=True)
class Job:
    """One captured and simulated rank."""

    evaluation: Evaluation

    @property
    def trace(self) -> Trace:
        return self.evaluation.priced.trace

    @property
    def result(self) -> Result:
        return self.evaluation.result

    @functools.cached_property
    def last_step(self) -> NDArray[np.int64]:
        """Indices of the entries of the last step; of all where there are no steps."""
        chosen = (self.trace.steps() or [slice(0, len(self.trace))])[-1]
        return np.arange(chosen.start, chosen.stop)

    def work(self, *phases: Phase, kinds: tuple[Kind, ...] = (Kind.WORK,), scope: str = "") -> NDArray[np.int64]:
        """Indices of the last step's device work in some phases (all unless named), below a module."""
        columns, step = self.trace.columns, self.last_step
        chosen = np.isin(columns["kind"][step], kinds)
        if phases:
            chosen &= np.isin(columns["phase"][step], phases)
        if scope:
            below = [index for index, name in enumerate(self.trace.scopes) if f"{name}.".find(f".{scope}.") >= 0]
            chosen &= np.isin(columns["scope"][step], below)
        return step[chosen]

    def signatures(self, indices: NDArray[np.int64]) -> list[Signature]:
        """What those entries did."""
        return [self.trace.signatures[index] for index in self.trace.column("signature")[indices]]

    def gemm_flops(self, *phases: Phase, scope: str = "") -> int:
        """Floating point operations of the matrix products of the last step."""
        work = self.signatures(self.work(*phases, scope=scope))
        return sum(signature.flops for signature in work if isinstance(signature, Gemm))

    def collectives(self, *phases: Phase) -> list[Collective]:
        """Communication of the last step, in order."""
        found = self.signatures(self.work(*phases, kinds=(Kind.COLLECTIVE,)))
        return [signature for signature in found if isinstance(signature, Collective)]

    def collective_bytes(self, kind: str, *phases: Phase) -> int:
        """Bytes of one kind of communication in the last step."""
        return sum(signature.bytes for signature in self.collectives(*phases) if signature.kind == kind)

    def seconds(self, *phases: Phase, scope: str = "") -> float:
        """Simulated time that the device worked on those entries of the last step."""
        indices = self.work(*phases, scope=scope)
        timeline = self.evaluation.timeline
        return float((timeline.end_ns[indices] - timeline.start_ns[indices]).sum()) / 1e9

    def operator(self, index: int) -> str:
        """Name of the operator behind an entry."""
        number = int(self.trace.column("operator")[index])
        return self.trace.operators[number] if number >= 0 else ""

    def peak_allocated(self) -> int:
        """The most that live blocks held, by the trace's own allocations and frees."""
        kinds, values = self.trace.column("kind"), self.trace.column("value")
        change = np.where(kinds == Kind.ALLOC, values, 0) - np.where(kinds == Kind.FREE, values, 0)
        return int(np.cumsum(change.astype(np.int64)).max())

    def held(self, before: int) -> Counter[Category]:
        """Bytes of the live blocks before an entry, by category."""
        live: dict[int, tuple[int, Category]] = {}
        columns = (self.trace.column(name)[:before].tolist() for name in ("kind", "object", "value"))
        for kind, address, value in zip(*columns):
            if kind == Kind.ALLOC:
                live[address] = (value, Category.OTHER)
            elif kind == Kind.FREE:
                live.pop(address, None)
            elif kind == Kind.RETAG and address in live:
                live[address] = (live[address][0], Category(value))
        total: Counter[Category] = Counter()
        for size, category in live.values():
            total[category] += size
        return total

    def held_after_step(self) -> Counter[Category]:
        """Bytes of the live blocks where the last step ends, by category."""
        return self.held(int(self.last_step[-1]))
