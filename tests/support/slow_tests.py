"""How long tests took, so that `make quick` leaves out the slow ones.

``python -m support.slow_tests SECONDS REPORT.xml …`` in tests/ writes ``slow_tests.txt`` from JUnit's reports of a run
on an otherwise idle machine, of which SECONDS is how long ten million additions take there in Python. The list has
the times of a machine where they take 0.5 s.
"""

from __future__ import annotations

import datetime
import functools
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

LIST = Path(__file__).parents[1] / "slow_tests.txt"
SLOW_S = 0.2
_ADDITIONS_S = 0.5


@functools.cache
def read_durations() -> dict[str, float]:
    """Seconds of the tests that took more than `SLOW_S`, by node id."""
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    words = (line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    return {node_id: float(duration_s) for duration_s, node_id in words}


def _durations(report: Path) -> dict[str, float]:
    """Seconds on the machine of the report, by node id; doctests are left out, which are short."""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return {
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(case.get("time", 0))
        for case in cases
        if case.get("classname", "").startswith("tests.")
    }


def main() -> None:
    """Write the list, the longest first."""
    speed, durations_s = _ADDITIONS_S / float(sys.argv[1]), dict[str, float]()
    for report in sys.argv[2:]:
        durations_s |= _durations(Path(report))
    slow = sorted((-duration_s * speed, node_id) for node_id, duration_s in durations_s.items())
    lines = [f"{-negative_s:.2f} {node_id}" for negative_s, node_id in slow if -negative_s > SLOW_S]
    heading = (
        f"# s, test: {datetime.date.today()}, {len(durations_s)} tests of {sum(durations_s.values()) * speed:.0f} s"
    )
    LIST.write_text("\n".join([heading, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
