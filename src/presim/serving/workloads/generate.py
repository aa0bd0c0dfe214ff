"""Generate workloads from a seed: arrival times, lengths, and shared prefixes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.workloads.workload import Ints, Workload, make
from presim.system.files import names_file, read_text, shortened

Arrivals = Literal["poisson", "gamma", "constant", "burst", "ramp"]
_S = 1e9


_MOST = 1 << 20  # most tokens of a prompt or an output
_DIGITS = 12
_WIDEST = 100.0  # largest standard deviation / mean


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Distribution of lengths in tokens: fixed, log-normal, or drawn from a file."""

    mean: float
    spread: float = 0.0  # standard deviation / mean; 0: fixed
    least: int = 1
    longest: int = _MOST
    drawn_from: tuple[int, ...] = ()
    lowest: float = 1.0  # below 1: uniform between this share of the mean and the mean, as vLLM's random-range-ratio

    def draw(self, rng: Generator, count: int) -> Ints:
        """Draw ``count`` lengths."""
        if self.drawn_from:
            return rng.choice(np.array(self.drawn_from, np.int64), count)
        if self.lowest < 1:
            return rng.integers(max(int(self.lowest * self.mean), 1), int(self.mean) + 1, count)
        if not self.spread:
            return np.full(count, round(self.mean), np.int64)
        sigma = np.sqrt(np.log1p(self.spread**2))
        drawn = rng.lognormal(np.log(self.mean) - sigma**2 / 2, sigma, count)
        return np.clip(np.rint(drawn), self.least, self.longest).astype(np.int64)


def lengths_of(word: str) -> Lengths:
    """Parse lengths: ``1024``, ``1024~0.5`` (log-normal, standard deviation / mean), or a file of numbers."""
    if names_file(word):
        path = Path(word)
        text = read_text(path, "list tokens, one per line")
        try:
            numbers = tuple(_whole(word) for word in text.split())
        except ValueError as error:
            raise InputError(
                f"{path} contains something other than whole numbers ({error}); list tokens, one per line"
            ) from error
        if not numbers or min(numbers) < 1 or max(numbers) > _MOST:
            raise InputError(f"{path} has lengths that are not from 1 to {_MOST:,} tokens, or none; correct it")
        return Lengths(float(np.mean(numbers)), drawn_from=numbers)
    mean, _, spread = word.partition("~")
    try:
        lengths = Lengths(float(mean) if spread else _whole(mean), float(spread or 0))
    except ValueError:
        lengths = Lengths(0)
    if not (1 <= lengths.mean <= _MOST and 0 <= lengths.spread <= _WIDEST):
        raise InputError(
            f"a length is 1024, 1024~0.5 or a file of numbers, not {shortened(word)!r} (1 to {_MOST:,} tokens); "
            "correct it"
        )
    return lengths


def _whole(word: str) -> int:
    if not (word.isascii() and word.isdecimal()) or len(word) > _DIGITS:
        raise ValueError(f"{shortened(word)!r}")
    return int(word)


@dataclasses.dataclass(frozen=True)
class WorkloadRecipe:
    """Parameters of a generated workload."""

    requests: int
    prompt: Lengths
    output: Lengths
    rate: float | None = None  # requests (first turns) per second; None: all at once
    arrivals: Arrivals = "poisson"
    burstiness: float = 1.0  # gamma arrivals: 1 is Poisson, lower is burstier, as in vllm bench serve
    ramp_to: float | None = None  # ramp arrivals: rate at the end
    burst: int = 1  # burst arrivals: requests per burst
    concurrency: int = 0
    shared_prefix: int = 0  # tokens shared by the prompts of a group
    groups: int = 1
    turns: int = 1  # turns per conversation; each prompt includes all earlier turns
    think_s: float = 0.0
    adapters: int = 0  # LoRA adapters, of which each conversation has one; 0: none
    structured: float = 0.0  # part of the requests whose output follows a grammar
    grammar_ms: float = 0.0  # to compile one
    seed: int = 0


def generate(recipe: WorkloadRecipe) -> Workload:
    """Generate the workload of a recipe, deterministically."""
    if recipe.requests < 1 or recipe.turns < 1 or recipe.groups < 1 or (recipe.rate is not None and recipe.rate <= 0):
        raise InputError(
            "a workload needs at least one request, turn and group, and a rate above 0; correct the options"
        )
    rng = np.random.default_rng(recipe.seed)
    chats = -(-recipe.requests // recipe.turns)
    arrival = _arrivals(recipe, rng, chats)
    prompt = recipe.prompt.draw(rng, chats * recipe.turns)
    output = recipe.output.draw(rng, chats * recipe.turns)
    shared = recipe.shared_prefix // 16 * 16  # whole blocks
    group = rng.integers(0, recipe.groups, chats)
    count = chats * recipe.turns
    has_grammar = rng.random(count) < recipe.structured if recipe.structured else np.zeros(count, np.bool_)
    workload = make(
        _name(recipe), *_turns(recipe, arrival, prompt + recipe.shared_prefix, output),
        stream=np.repeat(np.arange(chats), recipe.turns),
        parent=_parents(chats, recipe.turns),
        delay_ns=np.full(chats * recipe.turns, int(recipe.think_s * _S), np.int64),
        segment_first=np.arange(chats * recipe.turns + 1) * (1 if shared else 0),
        segments=np.repeat(group, recipe.turns) if shared else np.zeros(0, np.int64),
        segment_tokens=shared,
        adapter=np.repeat(rng.integers(1, recipe.adapters + 1, chats) if recipe.adapters else group * 0, recipe.turns),
        grammar_ns=np.where(has_grammar, int(recipe.grammar_ms * 1e6), -1).astype(np.int64),
        concurrency=recipe.concurrency, seed=recipe.seed, origin="presim.serving.workloads.generate",
    )  # fmt: skip
    return workload.first(recipe.requests)


def _turns(recipe: WorkloadRecipe, arrival: Ints, prompt: Ints, output: Ints) -> tuple[Ints, Ints, Ints]:
    """Extend prompts by all earlier turns; the turns of a conversation are adjacent."""
    shape = (len(arrival), recipe.turns)
    prompts, answered = prompt.reshape(shape).copy(), output.reshape(shape)
    prompts[:, 1:] -= recipe.shared_prefix  # the shared prefix counts once per conversation
    before = np.cumsum(prompts, axis=1)
    before[:, 1:] += np.cumsum(answered, axis=1)[:, :-1]
    return np.repeat(arrival, recipe.turns), before.ravel(), output


def _parents(chats: int, turns: int) -> Ints:
    parents = np.arange(chats * turns, dtype=np.int64) - 1
    parents[::turns] = -1
    return parents


def _arrivals(recipe: WorkloadRecipe, rng: Generator, count: int) -> Ints:
    if recipe.rate is None:
        return np.zeros(count, np.int64)
    mean = 1 / recipe.rate
    gaps: NDArray[np.float64]
    if recipe.arrivals == "constant":
        gaps = np.full(count, mean)
    elif recipe.arrivals == "gamma":
        gaps = rng.gamma(recipe.burstiness, mean / recipe.burstiness, count)
    elif recipe.arrivals == "burst":
        burst_number = np.arange(count) // recipe.burst
        return (burst_number * recipe.burst * mean * _S).astype(np.int64)
    elif recipe.arrivals == "ramp":
        rates = np.linspace(recipe.rate, recipe.ramp_to or 2 * recipe.rate, count)
        gaps = rng.exponential(1.0, count) / rates
    else:
        gaps = rng.exponential(mean, count)
    times = np.cumsum(gaps)
    if recipe.arrivals != "ramp":  # as vllm bench serve (0.33, get_request): the last of them comes at count / rate
        times *= count * mean / times[-1]
    return (times * _S).astype(np.int64)


def _name(recipe: WorkloadRecipe) -> str:
    arrival_text = "all at once" if recipe.rate is None else f"{recipe.arrivals}, {recipe.rate:g} requests/s"
    if recipe.concurrency:
        arrival_text = f"{recipe.concurrency} in flight" + ("" if recipe.rate is None else f", {arrival_text}")
    return f"{recipe.requests} requests, {recipe.prompt.mean:g} in, {recipe.output.mean:g} out, {arrival_text}"
