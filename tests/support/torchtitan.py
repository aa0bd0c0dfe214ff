"""torchtitan's trainer as its users start it, with what its log says."""

from __future__ import annotations

import dataclasses
import functools
import re
import runpy
import sys
import tempfile
from pathlib import Path
from unittest import mock

from presim.evaluation.options import EvaluationOptions
from presim.verbs.simulate import evaluate_saved
from support.captured import EXAMPLES, SCRIPTS, Job
from support.command import presim


@dataclasses.dataclass(frozen=True)
class Training:
    """The first captured rank of a training run, and the trainer's own log."""

    job: Job
    log: str
    folder: Path  # the saved trace

    def of(self, rank: int) -> Job:
        """Another captured rank."""
        return Job(evaluate_saved(self.folder, EvaluationOptions(rank=rank)))

    @property
    def parameters(self) -> int:
        """The model's size as the trainer counts it."""
        return int(re.search(r"size: ([\d,]+) total parameters", self.log)[1].replace(",", ""))  # type: ignore[index]

    @property
    def tokens_per_s(self) -> list[int]:
        """By step, where each is logged."""
        return [int(text.replace(",", "")) for text in re.findall(r"tps: ([\d,]+)", self.log)]

    @property
    def losses(self) -> list[float]:
        """By step, where each is logged."""
        return [float(text) for text in re.findall(r"loss: +([-\d.]+)", self.log)]

    @property
    def reserved_GiB(self) -> float:
        """The most memory that its allocator had reserved in the first step."""
        return float(re.search(r"memory: +([\d.]+)GiB", self.log)[1])  # type: ignore[index]


@functools.cache
def folder() -> Path:
    """A folder with tokenizer and text, for this test session."""
    path = Path(tempfile.mkdtemp(prefix="presim-torchtitan-"))
    with mock.patch.object(sys, "argv", ["torchtitan_assets.py", str(path)]):
        runpy.run_path(str(EXAMPLES / "torchtitan_assets.py"), run_name="__main__")
    return path


@functools.cache
def train(
    config: str,
    *options: str,
    module: str = "llama3",
    gpus: int = 8,
    ranks: str = "0",
    steps: int = 3,
    ours: tuple[str, ...] = (),
) -> Training:
    """`torchrun -m torchtitan.train` under presim (``ours``: its options); an equal call returns the same capture."""
    saved = Path(tempfile.mkdtemp(dir=folder()))
    done = presim(
        *("run", "--quiet", "--gpu", "h100-sxm", "--ranks", ranks, "--steps", str(steps), "--save", saved / "job"),
        *ours,
        *("--", "torchrun", "--nnodes", str(max(1, gpus // 8)), "--nproc-per-node", str(min(gpus, 8))),
        *("-m", "torchtitan.train", "--module", module, "--config", config, "--dump_folder", saved / "outputs"),
        *("--hf_assets_path", folder() / "tokenizer", "--dataloader.dataset", "c4_test"),
        *("--dataloader.dataset_path", folder() / "c4_test", "--training.steps", str(steps + 1), *options),
        cwd=saved,
        modules=[SCRIPTS],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    evaluation = evaluate_saved(saved / "job", EvaluationOptions(host_time="--host-time" not in ours))
    return Training(Job(evaluation), done.stderr + done.stdout, saved / "job")
