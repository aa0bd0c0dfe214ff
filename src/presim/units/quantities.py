"""The numbers that options take, each with its least and its largest sensible value, for the command line and Python.

A bound is beyond anything that exists, and below what 64 bits or a simulation's time can hold. Work that depends on the
product of several numbers has a budget beside it (`presim.system.budgets`).
"""

from __future__ import annotations

import dataclasses
import math

from presim.errors import InputError

_SHOWN = 24  # characters of a value in a sentence


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A kind of number. Both bounds belong to it; ``is_open``: the least does not, and is 0."""

    name: str  # as a sentence calls it: "a number of nodes"
    least: float
    greatest: float
    is_whole: bool = True
    is_open: bool = False

    def problem(self, value: object) -> str:
        """Why a value is none of this kind, with the bounds; empty if it is one."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{_short(value)} is not a number"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{value} is not {self}"
        if self.is_whole and value != int(value):
            return f"{_short(value)} is not a whole number"
        if not self.least <= value <= self.greatest or (self.is_open and value <= self.least):
            return f"{_short(value)} is not {self}"
        return ""

    def check(self, value: object, option: str) -> None:
        """Check the value of an option.

        Raises:
            InputError: it is none of this kind.
        """
        if problem := self.problem(value):
            raise InputError(f"{option}: {problem}")

    @property
    def bounds(self) -> str:
        """The bounds: "from 1 to 1,048,576"."""
        least = f"above {_figure(self.least)}, at most" if self.is_open else f"from {_figure(self.least)} to"
        return f"{least} {_figure(self.greatest)}"

    def __str__(self) -> str:
        """The kind with its bounds: "a number of nodes from 1 to 1,048,576"."""
        return f"{self.name} {self.bounds}"


def _figure(value: float) -> str:
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:g}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:12]}… ({len(text):,} characters)"


def _real(name: str, least: float, greatest: float, *, is_open: bool = False) -> Quantity:
    return Quantity(name, least, greatest, is_whole=False, is_open=is_open)


# Clusters. The largest announced have some hundred thousand GPUs; racks have up to 576.
GPUS = Quantity("a number of GPUs", 1, 1 << 20)
NODES = Quantity("a number of nodes", 1, 1 << 20)
GPUS_PER_NODE = Quantity("a number of GPUs per node", 1, 1024)
RANK = Quantity("a rank", 0, (1 << 20) - 1)
MESSAGE_BYTES = Quantity("a number of bytes", 1, 1 << 50)
RANKS = Quantity("a number of ranks", 0, 1 << 20)
DEGREE = Quantity("a parallel degree", 1, 1 << 16)

# Steps and samples.
STEPS = Quantity("a number of steps", 0, 1_000_000)
SEQUENCE = Quantity("a sequence length", 1, 1 << 24)  # published models take up to 10 million tokens
BATCH = Quantity("a number of samples", 1, 1 << 24)
MICRO_BATCHES = Quantity("a number of micro-batches", 1, 1 << 16)
BLOCKS_OF_MODEL = Quantity("a number of blocks", 0, 10_000)
BLOCKS = Quantity("a number of blocks", 1, 10_000)
LEVELS = Quantity("a number of levels", 0, 100)
TRAINING_TOKENS = _real("a number of tokens", 1, 1e18)  # published trainings have up to 4e13

# Serving.
REQUESTS = Quantity("a number of requests", 1, 100_000_000)
BENCHMARK_REQUESTS = Quantity("a number of requests", 1, 1_000_000)
CONCURRENCY = Quantity("a number of requests in flight", 0, 1_000_000_000)
TOKENS = Quantity("a number of tokens", 1, 1 << 24)
PREFIX = Quantity("a number of tokens", 0, 1 << 20)
SEQUENCES = Quantity("a number of sequences", 1, 1 << 16)
BLOCK_TOKENS = Quantity("a number of tokens per block", 1, 4096)
KV_BLOCKS = Quantity("a number of KV blocks", 2, 1 << 31)
TURNS = Quantity("a number of turns", 1, 10_000)
GROUPS = Quantity("a number of groups", 1, 100_000_000)
BURST = Quantity("a number of requests", 1, 100_000_000)
ENGINES = Quantity("a number of engines", 1, 4096)
ENGINES_OR_NONE = Quantity("a number of engines", 0, 4096)
ADAPTERS = Quantity("a number of adapters", 0, 1_000_000)
SCHEDULER_STEPS = Quantity("a number of steps", 1, 1_000_000)
RATE = _real("a number of requests per second", 1e-6, 1e9)
BURSTINESS = _real("a burstiness", 1e-3, 1e3)
SPEED_UP = _real("a speed-up", 1e-3, 1e6)
GIB = _real("a size in GiB", 0, 1e6)
PERCENT = _real("a percentage", 0, 100)
GBPS = _real("a bandwidth in GB/s", 1e-3, 1e6)
MEMORY_SHARE = _real("a share of memory", 0, 1, is_open=True)
SCALE_TARGET = _real("a target", 1e-3, 1e6)
MILLISECONDS = _real("a time in ms", 0, 1e7)

# Times and money.
SECONDS = _real("a time in s", 0, 1e8)  # three years
POSITIVE_SECONDS = _real("a time in s", 1e-3, 1e8)
DAYS = _real("a number of days", 0, 1e6, is_open=True)
HOURS = _real("a time in hours", 1e-3, 1e9)
PRICE = _real("a price", 0, 1e9, is_open=True)
SHARE = _real("a share", 0, 1)
PERCENTILE = _real("a percentile", 0, 100)
HOST_FACTOR = _real("a host factor", 0, 1e6)  # with more, times in ns do not fit 64 bits
FACTOR = _real("a factor", 1, 1e6)
CAPACITY = _real("a capacity", 0, 1e6)
DEVIATION = _real("a relative standard deviation", 0, 10)

# Work of presim itself.
SEED = Quantity("a seed", 0, (1 << 63) - 1)
DRAWS = Quantity("a number of draws", 1, 1_000_000)
TRAININGS = Quantity("a number of trainings", 1, 1_000_000)
TRIALS = Quantity("a number of trials", 1, 10_000_000)
PLANS = Quantity("a number of plans", 0, 1000)
CASES = Quantity("a number of cases", 0, 10_000_000)
ROWS = Quantity("a number of rows", 0, 1_000_000_000)
PROCESSES = Quantity("a number of processes", 1, 1024)
PORT = Quantity("a port", 0, 65_535)
MEASURING_SECONDS = _real("a time in s", 1, 1e6)
STALENESS = Quantity("a number of batches", 0, 1000, is_whole=False)
SPLIT_RANKS = Quantity("a number of ranks", 1, 64)
DRAFT_TOKENS = Quantity("a number of tokens", 1, 16)
LORAS = Quantity("a number of adapters", 0, 256)
LORA_RANK = Quantity("a rank of adapters", 1, 512)
SWITCH = Quantity("a switch", 0, 1)
SLEEP_LEVEL = Quantity("a level of sleep", 0, 2)
