"""Host time from one trace entry to the next, by phase and kind of entry: means over captured runs."""

from __future__ import annotations

import functools
from importlib import resources

from presim.system.files import decode_json
from presim.trace.schema import Kind, Phase

FILE = "hosts.json"  # written by validation/composed_hosts.py


class HostTimes:
    """Launch times of one framework style, in ns on the reference host."""

    def __init__(self, table: dict[str, dict[str, int]]) -> None:
        self._table = table

    @functools.cache  # noqa: B019  one instance per style for the life of the process
    def of(self, phase: Phase, kind: Kind, name: str) -> int:
        """Host ns since the previous entry; falls back to other phases, then to the mean of the entry's kind."""
        label = f"{kind.name} {name}".strip()
        phase_times = self._table.get(phase.name, {})
        for table in (phase_times, *self._table.values()):
            if label in table:
                return table[label]
        return phase_times.get(kind.name, self._table["FORWARD"].get(kind.name, 0))


@functools.cache
def host_times(style: str = "eager", cuda_graphs: bool = False) -> HostTimes:
    """The measured table of a framework style; with CUDA graphs, only the host time of step ends counts."""
    text = resources.files("presim.composition").joinpath(FILE).read_text()
    table: dict[str, dict[str, int]] = decode_json(text)["styles"][style]
    if cuda_graphs:
        table = {phase: {name: ns for name, ns in times.items() if name == "STEP"} for phase, times in table.items()}
    return HostTimes(table)
