"""Read a GPU's energy counter, clocks and temperature while it works. Needs no PyTorch."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from typing import Protocol

from presim.errors import InputError

READ_S = 0.004  # between two readings of the counter
Sample = tuple[float, float, float, float, float]  # s, J, SM MHz, memory MHz, degrees Celsius


class Meter(Protocol):
    """What is read of a GPU; a test has one of its own."""

    def joules(self) -> float:
        """Energy since the driver was loaded."""

    def state(self) -> tuple[float, float, float]:
        """SM clock and memory clock in MHz, temperature in degrees Celsius."""

    def reasons(self) -> int:
        """NVML's bits of what limits the clocks now."""

    def limit_watts(self) -> float:
        """The power limit in force."""


class Nvml:
    """The GPU of this process, read through nvidia-ml-py.

    Raises:
        InputError: nvidia-ml-py is missing, or the driver has no energy counter for this GPU.
    """

    def __init__(self, index: int) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self.nvml = pynvml
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            self.joules()
        except ImportError as error:
            raise InputError(f"{error}; pip install nvidia-ml-py") from error
        except pynvml.NVMLError as error:
            raise InputError(f"NVML does not read this GPU's energy ({error}); V100 or newer is needed") from error

    def joules(self) -> float:
        """As `Meter`."""
        return self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1e3

    def state(self) -> tuple[float, float, float]:
        """As `Meter`."""
        nvml = self.nvml
        sm, memory = (self._read("nvmlDeviceGetClockInfo", each) for each in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM))
        return sm, memory, self._read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU)

    def reasons(self) -> int:
        """As `Meter`."""
        return int(self._read("nvmlDeviceGetCurrentClocksThrottleReasons"))

    def limit_watts(self) -> float:
        """As `Meter`."""
        return self._read("nvmlDeviceGetEnforcedPowerLimit") / 1e3

    def _read(self, call: str, *which: int) -> float:
        """A figure beside the energy; 0 where the driver does not tell it."""
        try:
            return float(getattr(self.nvml, call)(self.handle, *which))
        except (self.nvml.NVMLError, AttributeError):
            return 0.0


def watched(meter: Meter, samples: list[Sample], stop: threading.Event) -> None:
    """Read the meter until told to stop; one sample for each change of the counter."""
    last = meter.joules()
    while not stop.is_set():
        joules = meter.joules()
        if joules != last:
            samples.append((time.perf_counter(), joules, *meter.state()))
            last = joules
        stop.wait(READ_S)


def summary(samples: list[Sample]) -> dict[str, object]:
    """Mean power between the first and the last change of the counter, and mean clocks.

    Raises:
        RuntimeError: there are fewer than two changes.
    """
    if len(samples) < 2:
        raise RuntimeError(f"the energy counter changed {len(samples)} times in the window; at least 2 are needed")
    (start, least, *_), (end, most, *_) = samples[0], samples[-1]
    step = statistics.median(later[0] - earlier[0] for earlier, later in itertools.pairwise(samples))
    sm, memory, degrees = (statistics.fmean(sample[place] for sample in samples) for place in (2, 3, 4))
    return {
        "watts": (most - least) / (end - start), "window_s": end - start, "counter_step_s": step,
        "sm_MHz": sm, "memory_MHz": memory, "degrees": degrees, "sm_MHz_lowest": min(sample[2] for sample in samples),
    }  # fmt: skip
