"""The hosts of a job and their slots: DeepSpeed's host file, and the lists of Open MPI and Hydra."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

from presim.capture.launchers.launcher_options import whole_number
from presim.errors import InputError
from presim.system.files import read_text

_ALL = 0  # slots of a host that the list does not give: all of its GPUs


def read_deepspeed_hosts(path: str) -> dict[str, int]:
    """Slots by host of lines ``host slots=8``, which DeepSpeed requires.

    Raises:
        InputError: the file cannot be read, is no text, has no host, one twice, or a line of another form.
    """
    slots_by_host: dict[str, int] = {}
    for words in _lines(path, "deepspeed"):
        slots = _slots(words[1:], ("slots",))
        if not slots:
            raise InputError(
                f"{path}: the line {_shown(words)} must be `host slots=8`, as DeepSpeed reads it; correct it"
            )
        if words[0] in slots_by_host:
            raise InputError(f"{path} has the host {words[0][:80]} twice, which DeepSpeed refuses; correct it")
        slots_by_host[words[0]] = slots
    if not slots_by_host:
        raise InputError(f"{path} has no host; give lines such as `worker-0 slots=8`")
    return slots_by_host


def read_mpi_hosts(path: str) -> dict[str, int]:
    """Slots by host of an MPI host file; a host named once without slots has 0, which means all of its GPUs.

    Open MPI writes ``host slots=8 max_slots=16``, Hydra ``host:8 binding=...``. The slots of lines with the same host
    add up, and where no line has slots, each line is one.

    Raises:
        InputError: the file cannot be read, is no text, has no host, or slots that are no number.
    """
    entries: list[tuple[str, int]] = []
    for words in _lines(path, "mpirun"):
        host, colon, count = words[0].rpartition(":") if words[0].rpartition(":")[2].isdecimal() else (words[0], "", "")
        slots = whole_number(count) if colon else _slots(words[1:], ("slots", "max_slots", "max-slots"))
        if slots is None:
            raise InputError(f"{path}: the line {_shown(words)} must be `host slots=8` or `host:8`; correct it")
        entries.append((host, slots))
    if not entries:
        raise InputError(f"{path} has no host; give lines such as `node1 slots=8`")
    return _sum_slots(entries)


def read_host_option(text: str) -> dict[str, int]:
    """Slots by host of ``host1:8,host2:8``; each host without slots is one slot, as for Open MPI.

    Raises:
        InputError: slots are no number.
    """
    entries: list[tuple[str, int]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = part.partition(":")
        slots = whole_number(count) if colon else 1
        if not slots:
            raise InputError(f"mpirun: the host {part[:80]!r} must be a name or name:slots; correct it")
        entries.append((host, slots))
    return _sum_slots(entries)


def _lines(path: str, launcher: str) -> Iterable[list[str]]:
    text = read_text(path, f"give {launcher} a host file of UTF-8 text")
    for line in text.splitlines():
        if words := line.split("#")[0].replace(" = ", "=").split():
            yield words


def _slots(words: Sequence[str], names: Sequence[str]) -> int | None:
    """The value of the first of these names that the words set; None: it is no number; `_ALL` if none is set."""
    values = dict(word.partition("=")[::2] for word in words)
    return next((whole_number(values[name]) for name in names if name in values), _ALL)


def _sum_slots(entries: Sequence[tuple[str, int]]) -> dict[str, int]:
    totals: collections.Counter[str] = collections.Counter()
    for host, slots in entries:
        totals[host] += slots
    mentions = collections.Counter(host for host, _ in entries)
    is_repeated = len(mentions) < len(entries)
    return {host: total or (mentions[host] if is_repeated else _ALL) for host, total in totals.items()}


def _shown(words: Sequence[str]) -> str:
    return repr(" ".join(words)[:80])
