"""Run a training script as it is, and print one line of JSON about its steps.

    python validation/gpu/steps.py SCRIPT [ARGS...]

A step ends with the optimizer's. Five are timed between synchronisations after three that warm up, and what their
hosts did before they waited; one more is recorded by PyTorch's profiler for its kernels and who launched them. The
script is stopped then.
"""

from __future__ import annotations

import collections
import contextlib
import json
import runpy
import statistics
import sys
import time
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError

with sentences():
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.profiler import ProfilerActivity, profile

WARM_UP, TIMED = 3, 5


class Watch:
    """Counts steps, times them, and leaves the script when it has what it wants."""

    def __init__(self) -> None:
        self.seen = 0
        self.marks: list[float] = []  # wall time after each synchronisation
        self.before: list[float] = []  # CPU time of all threads when the host begins to wait for the device
        self.after: list[float] = []  # and when it goes on; between the two it may spin
        self.memory = (0, 0)  # peak allocated and reserved bytes
        self.profiler: profile | None = None

    def step(self, *_: object) -> None:
        """After each optimizer step."""
        self.seen += 1
        if WARM_UP <= self.seen <= WARM_UP + TIMED:
            self.before.append(time.process_time())
            torch.cuda.synchronize()
            self.marks.append(time.perf_counter())
            self.after.append(time.process_time())
        if self.seen == WARM_UP:
            torch.cuda.reset_peak_memory_stats()
        if self.seen == WARM_UP + TIMED:
            self.memory = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
            self.profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
            self.profiler.start()
        if self.seen == WARM_UP + TIMED + 1:
            torch.cuda.synchronize()
            self.profiler.stop()
            raise SystemExit(0)

    def report(self) -> dict[str, object]:
        """What was seen, in seconds and bytes."""
        times = [later - earlier for earlier, later in zip(self.marks, self.marks[1:])]
        host = [later - earlier for earlier, later in zip(self.after, self.before[1:])]
        events = self.profiler.events() if self.profiler else []
        kernels = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
        kernels.sort(key=lambda event: event.time_range.start)
        return {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "step_s": statistics.median(times),
            "step_spread": (max(times) - min(times)) / 2 / statistics.median(times),
            "host_s": statistics.median(host),
            "peak_allocated": self.memory[0],
            "peak_reserved": self.memory[1],
            "kernels": len(kernels),
            "kernel_s": sum(event.time_range.elapsed_us() for event in kernels) * 1e-6,
            "sequence": [event.name[:60] for event in kernels],
            "by_operator": launches(events),
            "by_name": dict(collections.Counter(event.name[:60] for event in kernels).most_common()),
        }


def launches(events: list[object]) -> dict[str, int]:
    """How many kernels each operator launched, most first."""
    counts = collections.Counter[str]()
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CPU and event.kernels:
            counts[event.name] += len(event.kernels)
    return dict(counts.most_common())


def watched(command: list[str]) -> Watch:
    """What is seen of a script with its arguments.

    Raises:
        InputError: there is no such script, or it makes too few steps.
    """
    if not Path(command[0]).is_file():
        raise InputError(f"there is no script {command[0]}")
    watch = Watch()
    register_optimizer_step_post_hook(watch.step)
    before, sys.argv = sys.argv, list(command)
    if "--steps" not in command:
        sys.argv += ["--steps", str(WARM_UP + TIMED + 2)]
    with contextlib.suppress(SystemExit):
        runpy.run_path(command[0], run_name="__main__")
    sys.argv = before
    if watch.seen <= WARM_UP + TIMED:
        raise InputError(f"the script made {watch.seen} optimizer steps, {WARM_UP + TIMED + 1} are needed")
    return watch


def main() -> None:
    """Run the script of the command line; print what was seen."""
    if len(sys.argv) < 2:
        raise InputError("no script is named: steps.py SCRIPT [ARGS...]")
    if not torch.cuda.is_available():
        raise InputError("there is no GPU here that PyTorch can use")
    print(json.dumps(watched(sys.argv[1:]).report()))


if __name__ == "__main__":
    with sentences():
        main()
