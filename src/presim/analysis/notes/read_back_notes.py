"""Device values that the captured ranks read, by place in the script, with the policy that supplied them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from presim.result import PolicyUse, ReadBack
from presim.trace.schema import Manifest

_NAMED = 2  # places in a note
# what a read-back calls it -> keys of --values, where they are others; of several, those that are set count
_KEYS = {"sampling": ("token", "eos", "eos_after", "acceptance")}


def read_backs(manifests: Sequence[Manifest]) -> list[ReadBack]:
    """Read-backs of all captured ranks, most frequent first; ranks that read at the same line share an entry."""
    times: dict[tuple[str, str, str], dict[int, int]] = defaultdict(dict)
    for manifest in manifests:
        for read in manifest.read_backs:
            of_ranks = times[read.line, read.what, read.answer]
            of_ranks[manifest.rank] = of_ranks.get(manifest.rank, 0) + read.times
    rows = [
        ReadBack(*key, max(times_by_rank.values()), ranges(sorted(times_by_rank)))
        for key, times_by_rank in times.items()
    ]
    return sorted(rows, key=lambda read: (-read.times, read.line, read.what, read.answer))


def ranges(ranks: Sequence[int]) -> str:
    """Ascending numbers as ranges.

    >>> ranges([0, 1, 2, 8, 10, 11])
    '0-2, 8, 10, 11'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def policies_used(reads: Sequence[ReadBack], policies: Mapping[str, str]) -> list[PolicyUse]:
    """The policies whose values were read, by their first appearance in ``reads``; ``policies``: all settings."""
    reads_by_policy: dict[str, list[ReadBack]] = defaultdict(list)
    for read in reads:
        if read.answer != "computed":
            keys = _KEYS.get(read.answer, (read.answer.replace(" ", "_"),))
            for key in [key for key in keys if key in policies] or keys[:1]:
                reads_by_policy[key].append(read)
    return [
        PolicyUse(
            key,
            policies.get(key, ""),
            sum(read.times for read in supplied),
            list(dict.fromkeys(r.line for r in supplied)),
        )
        for key, supplied in reads_by_policy.items()
    ]


def policies_note(reads: Sequence[ReadBack], captured: str) -> list[str]:
    """A note on values that policies supplied; ``captured``: all ranks of the job, as `ranges`."""
    answered: dict[str, list[ReadBack]] = defaultdict(list)
    for read in reads:
        if read.answer != "computed":
            answered[read.answer].append(read)
    if not answered:
        return []
    ordered = sorted(answered.items(), key=lambda item: (-sum(read.times for read in item[1]), item[0]))
    named = [
        f"{name} {sum(read.times for read in reads)}x ({_describe_lines(reads, captured)})" for name, reads in ordered
    ]
    are_all = all(len({read.line for read in reads}) <= _NAMED for reads in answered.values())
    reference = "" if are_all else ", read_backs in the JSON result has all places"
    return [f"Policies supplied values that the script read: {', '.join(named)}; --values changes them{reference}."]


def selection_note(reads: Sequence[ReadBack], captured: str) -> list[str]:
    """A note on elements that masks select whose values presim does not compute."""
    unknown = [read for read in reads if (read.what, read.answer) == ("nonzero", "zero")]
    if not unknown:
        return []
    return [
        f"Masks whose values are not computed select nothing ({_describe_lines(unknown, captured)}): work on what they "
        "select on a GPU is missing."
    ]


def _describe_lines(reads: list[ReadBack], captured: str) -> str:
    """The first lines and the number of others; with the ranks, if only some ranks read there."""
    lines = [line.rpartition("/")[2] for line in sorted({read.line for read in reads})]
    unnamed_count = len(lines) - _NAMED
    places = ", ".join(lines[:_NAMED]) + (f" and {unnamed_count} more" if unnamed_count > 0 else "")
    (ranks, *other_ranks) = {read.ranks for read in reads}
    if other_ranks or ranks == captured:
        return places
    return f"{places}; rank{'' if ranks.isdecimal() else 's'} {ranks}"
