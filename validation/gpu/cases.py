"""Run named cases one after the other: one JSON line each, within a time budget, whatever becomes of a single case.

A case returns its row. One that raises or takes longer than `CASE_S` leaves a row with its error. After an error from
which the GPU does not recover in this process, it ends with `CARD_LOST`. Another call goes on behind that case, and
behind one with which the process ended.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from presim.cost.profile import CARD_LOST
from presim.errors import InputError

Case = Callable[[], dict[str, object]]
CASE_S = 40  # a case that takes longer is given up


def main(documentation: str, cases: Callable[[], Mapping[str, Case]]) -> None:
    """The command line of a script of cases: RESULTS.jsonl SECONDS [--only TEXT]."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULTS.jsonl", type=Path)
    parser.add_argument("seconds", metavar="SECONDS", type=float)
    parser.add_argument("--only", default="", help="run the cases whose name contains this text")
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    import torch

    if not torch.cuda.is_available():
        raise InputError("there is no GPU here that PyTorch can use")
    torch.zeros(1, device="cuda")
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    results: Path = options.results
    mark_ended(results)
    done = {json.loads(line)["case"] for line in results.read_text().splitlines()} if results.exists() else set()
    pending = {name: case for name, case in cases().items() if name not in done and options.only in name}
    sys.exit(run(pending, results, ends, about))


def run(pending: Mapping[str, Case], results: Path, ends: float, about: Mapping[str, str]) -> int:
    """Run the cases until the time is used up, with what each row tells about the machine; returns the exit code."""
    left = len(pending)
    for name, case in pending.items():
        if time.monotonic() > ends:
            break
        began = time.monotonic()
        begun(results).write_text(name)
        row = {"case": name, **about, **attempted(case)}
        row["took_s"] = round(time.monotonic() - began, 2)
        append(results, row)
        begun(results).unlink()
        left -= 1
        if not usable():
            print(f"{name}: the GPU does not answer this process any more; {left} left")
            return CARD_LOST
    print(f"{left} left" if left else "nothing left")
    return 0


def append(results: Path, row: Mapping[str, object]) -> None:
    """Add one row."""
    with results.open("a") as file:
        file.write(json.dumps(row) + "\n")


def begun(results: Path) -> Path:
    """The file that names the case that runs; it stays where the process ends with the case."""
    return results.with_suffix(".case")


def mark_ended(results: Path) -> None:
    """A row for the case with which the last process ended."""
    if begun(results).exists():
        append(results, {"case": begun(results).read_text(), "error": "the process ended with this case"})
        begun(results).unlink()


def attempted(case: Case) -> dict[str, object]:
    """The row of a case, or why there is none."""
    try:
        with limited(CASE_S):
            return case()
    except Exception as error:  # noqa: BLE001 - a case must not stop the others, whatever its library raises
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the body after so many seconds of wall time."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def usable() -> bool:
    """Whether this process can still use the GPU; frees what the last case held."""
    import torch

    try:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
    except RuntimeError:
        return False
    return True
