"""Run a training script as it is, and print one line of JSON about its steps.

    python validation/gpu/steps.py SCRIPT [ARGS...]

A step ends with the optimizer's. Ten are timed between synchronisations after three that warm up, with the CPU time of
the host before it waits and the energy that the GPU counts; eight more between one synchronisation and the next, as the
script alone would run them; one more is recorded by PyTorch's profiler for its kernels and who launched them. Then
the script is stopped.
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import runpy
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError

with sentences():
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.profiler import ProfilerActivity, profile

WARM_UP, TIMED, FREE = 3, 10, 8


class Watch:
    """Counts steps, times them, and leaves the script when it has what it wants."""

    def __init__(self, trace: Path | None = None) -> None:
        self.trace = trace  # where the profile of the last step goes
        self.seen = 0
        self.marks: list[float] = []  # wall time after each synchronisation
        self.before: list[float] = []  # CPU time of all threads when the host begins to wait for the device
        self.after: list[float] = []  # and when it goes on; between the two it may spin
        self.joules: list[float] = []  # the GPU's counter before and after the timed steps
        self.memory = (0, 0)  # peak allocated and reserved bytes
        self.free: list[float] = []  # wall time before and after the steps without synchronisation
        self.profiler: profile | None = None

    def step(self, *_: object) -> None:
        """After each optimizer step."""
        self.seen += 1
        if WARM_UP <= self.seen <= WARM_UP + TIMED:
            self.before.append(time.process_time())
            torch.cuda.synchronize()
            self.marks.append(time.perf_counter())
            if self.seen in (WARM_UP, WARM_UP + TIMED):
                self.joules.append(joules())
            self.after.append(time.process_time())
        if self.seen == WARM_UP:
            torch.cuda.reset_peak_memory_stats()
            self.marks[0] = time.perf_counter()
        if self.seen == WARM_UP + TIMED:
            self.memory = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
            self.free.append(time.perf_counter())
        if self.seen == WARM_UP + TIMED + FREE:
            torch.cuda.synchronize()
            self.free.append(time.perf_counter())
            self.profiler = profile(
                activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
                record_shapes=self.trace is not None,
                profile_memory=self.trace is not None,
            )
            self.profiler.start()
        if self.seen == WARM_UP + TIMED + FREE + 1:
            torch.cuda.synchronize()
            self.profiler.stop()
            if self.trace is not None:
                self.profiler.export_chrome_trace(str(self.trace))
            raise SystemExit(0)

    def report(self) -> dict[str, object]:
        """What was seen, in seconds and bytes."""
        times = [later - earlier for earlier, later in zip(self.marks, self.marks[1:])]
        host = [later - earlier for earlier, later in zip(self.after, self.before[1:])]
        events = self.profiler.events() if self.profiler else []
        kernels = [event for event in events if event.device_type == torch.autograd.DeviceType.CUDA]
        kernels = [event for event in kernels if not event.is_user_annotation]
        kernels.sort(key=lambda event: event.time_range.start)
        return {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "step_s": statistics.median(times),
            "free_s": (self.free[1] - self.free[0]) / FREE,
            "step_spread": (max(times) - min(times)) / 2 / statistics.median(times),
            "host_s": statistics.median(host),
            "joules": None if math.isnan(spent := self.joules[1] - self.joules[0]) else spent / TIMED,
            "peak_allocated": self.memory[0],
            "peak_reserved": self.memory[1],
            "kernels": len(kernels),
            "kernel_s": sum(event.time_range.elapsed_us() for event in kernels) * 1e-6,
            "sequence": [event.name[:60] for event in kernels],
            "by_operator": launches(events),
            "seconds_by_operator": durations(events),
            "by_name": dict(collections.Counter(event.name[:60] for event in kernels).most_common()),
        }


def launches(events: list[object]) -> dict[str, int]:
    """How many kernels each operator launched, most first."""
    counts = collections.Counter[str]()
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CPU and event.kernels:
            counts[event.name] += len(event.kernels)
    return dict(counts.most_common())


def durations(events: list[object]) -> dict[str, float]:
    """Device time in seconds of the kernels that each operator launched, longest first."""
    seconds = collections.Counter[str]()
    for event in events:
        if event.device_type == torch.autograd.DeviceType.CPU and event.kernels:
            seconds[event.name] += sum(kernel.duration for kernel in event.kernels) * 1e-6
    return dict(seconds.most_common())


def joules() -> float:
    """Energy of the first GPU since its driver was loaded; NaN where NVML's bindings or the counter are missing."""
    try:
        import pynvml
    except ImportError:
        return math.nan
    try:
        pynvml.nvmlInit()
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0))) * 1e-3
    except pynvml.NVMLError:
        return math.nan


def watched(command: list[str], trace: Path | None = None) -> Watch:
    """What is seen of a script with its arguments; ``trace``: where PyTorch's profile of one step goes.

    Raises:
        InputError: there is no such script, or it makes too few steps.
    """
    if not Path(command[0]).is_file():
        raise InputError(f"there is no script {command[0]}")
    watch = Watch(trace)
    register_optimizer_step_post_hook(watch.step)
    before, sys.argv = sys.argv, list(command)
    if "--steps" not in command:
        sys.argv += ["--steps", str(WARM_UP + TIMED + FREE + 2)]
    with contextlib.suppress(SystemExit):
        runpy.run_path(command[0], run_name="__main__")
    sys.argv = before
    if watch.seen <= WARM_UP + TIMED + FREE:
        raise InputError(f"the script made {watch.seen} optimizer steps, {WARM_UP + TIMED + FREE + 1} are needed")
    return watch


def send(results: Connection, command: list[str], trace: Path | None) -> None:
    """Run a script in this process, which ends with it, and send what was seen, or why there is nothing."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            results.send(watched(command, trace).report())
        except Exception as error:  # noqa: BLE001 whatever ends the script
            results.send({"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:300]})


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
