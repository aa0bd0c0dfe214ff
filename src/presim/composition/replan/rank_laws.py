"""How quantities of a job's calls follow from the number of ranks that share its parameters.

Two captures show a number each. It stays, or is a share of something fixed, or grows with the ranks: each of these laws
has one unknown, so that the second capture confirms it or does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.layer_growth import BYTES, Calls, words_of
from presim.composition.replan.layer_names import names_of
from presim.errors import InputError
from presim.trace.schema import Kind, Trace

Ints = NDArray[np.int64]
_UNSPLIT_BYTES, _ROUNDED_BYTES = 1 << 20, 512  # what PyTorch's allocator may add to a large and to a small block
_SMALL = 1 << 16  # bytes or elements: calls of no more take as long as empty ones
_PADDING = 0.01  # of a share: what FSDP pads, and what its lists of sizes have beside the shards


@dataclasses.dataclass(frozen=True)
class RankNumbers:
    """Numbers of ranks of the two captures, and of the job that is asked for."""

    smaller: int
    larger: int
    target: int

    def factor(self, before: int, after: int, slack: tuple[float, float]) -> float | None:
        """By what a number of the larger capture is to be multiplied; None: no law holds.

        ``slack``: by how much the number of the smaller and that of the larger capture may be too large.

        >>> numbers = RankNumbers(8, 16, 64)
        >>> numbers.factor(100, 100, (0, 0)), numbers.factor(100, 50, (0, 0)), numbers.factor(8, 16, (0, 0))
        (1.0, 0.25, 4.0)
        """
        ratio = self.larger / self.smaller
        slack_before, slack_after = slack
        if before == after:
            return 1.0
        if abs(before - after * ratio) <= slack_before + slack_after * ratio:
            return self.larger / self.target
        if abs(after - before * ratio) <= slack_after + slack_before * ratio:
            return self.target / self.larger
        return 1.0 if abs(after - before) <= max(slack) else None


def calls_of(trace: Trace) -> Calls:
    """All calls of a trace but those of the allocator to the device, which another size makes elsewhere."""
    entries = np.flatnonzero(~trace.mask(Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE))
    return Calls(trace, entries, names_of(trace.scopes, "."), names_of(trace.operators, "."))


def factors_between(smaller: Calls, wider: Calls, numbers: RankNumbers) -> Mapping[int, Mapping[str, float]]:
    """For calls of the wider capture, by what factor their quantities change.

    Raises:
        InputError: the captures do different things, or a quantity follows no law; the call is named.
    """
    words: dict[str, int] = {}
    keys, wider_keys = smaller.keys(words), wider.keys(words)
    runs, wider_runs = _runs(keys), _runs(wider_keys)
    length = min(len(runs), len(wider_runs)) - 1
    differs = (keys[runs[:length]] != wider_keys[wider_runs[:length]]).any(axis=1)
    if differs.any() or len(runs) != len(wider_runs):
        first = int(np.flatnonzero(differs)[0]) if differs.any() else length - 1
        raise InputError(
            f"with {numbers.larger} ranks the job does {words_of(wider, int(wider_runs[first]))}, and with "
            f"{numbers.smaller} {words_of(smaller, int(runs[first]))}, so it is not known what {numbers.target} do; "
            f"capture it with --world-size, at the size you want"
        )
    factors: dict[int, Mapping[str, float]] = {}
    last_step = _first_call_of_last_step(wider)
    for run in zip(*_bounds(runs), *_bounds(wider_runs)):
        factors |= _factors_of_run(smaller, wider, run, numbers, is_set_up=run[2] < last_step)
    return factors


def _factors_of_run(
    smaller: Calls, wider: Calls, run: tuple[int, int, int, int], numbers: RankNumbers, *, is_set_up: bool
) -> Mapping[int, Mapping[str, float]]:
    """Factors by call of the wider run. Launches over lists of tensors part them elsewhere, but their sum has a law.

    ``run``: first call and end in both. ``is_set_up``: the time of its work is not reported.
    """
    begin, end, wider_begin, wider_end = run
    pairs = list(zip(range(begin, end), range(wider_begin, wider_end)))
    if end - begin == wider_end - wider_begin:
        laws = [
            _factors(smaller.quantities(call, call + 1), wider.quantities(twin, twin + 1), numbers)[0]
            for call, twin in pairs
        ]
        if all(law is not None for law in laws):
            return {call: law for (_, call), law in zip(pairs, laws) if law}
    before, after = smaller.quantities(begin, end), wider.quantities(wider_begin, wider_end)
    law, name = _factors(before, after, numbers)
    if law is not None:
        return dict.fromkeys(range(wider_begin, wider_end), law)
    if is_set_up and BYTES not in after:
        return {}
    unit = "bytes" if name == BYTES else name.replace("_", " ")
    raise InputError(
        f"the {unit} of {words_of(wider, wider_begin)} are {before.get(name, 0):,} with {numbers.smaller} ranks and "
        f"{after[name]:,} with {numbers.larger}, which is neither the same nor a share of one whole, so those with "
        f"{numbers.target} are not known; capture the job with --world-size, at the size you want"
    )


def _first_call_of_last_step(calls: Calls) -> int:
    steps = calls.trace.steps()
    return int(np.searchsorted(calls.entries, steps[-1].start)) if steps else 0


def _bounds(runs: Ints) -> tuple[list[int], list[int]]:
    return runs[:-1].tolist(), runs[1:].tolist()


def _runs(keys: Ints) -> Ints:
    """First calls of runs of device work that differ in nothing but quantities, and the number of calls."""
    is_same = (keys[1:] == keys[:-1]).all(axis=1) & (keys[1:, 0] == Kind.WORK)
    is_host = np.isin(keys[:, 0], (Kind.HOST_CALL, Kind.HOST_WAIT))
    return np.append(np.flatnonzero(np.concatenate([[True], ~is_same]) & ~is_host), len(keys))


def _factors(
    before: Mapping[str, int], after: Mapping[str, int], numbers: RankNumbers
) -> tuple[Mapping[str, float] | None, str]:
    """By what factor quantities change; or None, and the one without a law."""
    factors = {}
    for name, number in after.items():
        earlier = before.get(name, 0)
        factor = numbers.factor(earlier, number, (_slack(name, earlier), _slack(name, number)))
        # A small block that shrinks without a law keeps its bytes; one that grows may be large on many ranks.
        is_small = max(earlier, number) <= _SMALL and (name != BYTES or number < earlier)
        if factor is None and not is_small:
            return None, name
        if factor not in (None, 1.0):
            factors[name] = factor
    return factors, ""


def _slack(name: str, number: int) -> float:
    if name == BYTES:
        return _UNSPLIT_BYTES if number > _UNSPLIT_BYTES else _ROUNDED_BYTES
    return _PADDING * number
