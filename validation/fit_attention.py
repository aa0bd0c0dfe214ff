"""Fits the constants of cuDNN's attention on a GPU to its authors' benchmark.

    python validation/fit_attention.py GPU PRECISION [papers/cudnn.csv]

Example: ``gb300 bfloat16``. The printed constants are those of `[attention.…]` in
`src/presim/hardware/constants/operators.toml`, with more digits. The shapes of Kimi K2 are held out. It takes seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from presim.cli.script import sentences
from presim.cost.analytic.attention import seconds
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.analytic.operator_constants import AttentionConstants, find_constants
from presim.errors import InputError
from presim.hardware.catalogue import gpu
from presim.studies.validation.cases import Case
from presim.studies.validation.published_operators import OPERATORS, signature_of
from presim.trace.signatures import Attention

_BOUNDS = {  # of what is fitted; a GPU whose rows have no windows keeps their overhead
    "efficiency": (0.2, 0.98),
    "softmax_dim": (1.0, 600.0),
    "tile_overhead": (0.0, 4.0),
    "quantisation": (0.0, 1.0),
    "lone": (1.0, 2.0),
    "launch_us": (1.0, 12.0),
    "backward": (0.4, 1.2),
    "blend": (1.0, 4.0),
    "backward_passes": (0.0, 3.0),
    "memory": (0.4, 0.95),
    "window_overhead": (0.0, 12.0),
}
_HELD_OUT = "kimiK26"
_USUAL_ERROR = 0.05  # larger ones count less than squared

Point = tuple[Attention, float]  # what was timed, and the seconds


def points(rows: Sequence[dict[str, str]]) -> list[Point]:
    """The work and the time of each row."""
    found = []
    for case in map(Case, rows):
        signature, time_us = signature_of(case), case.number("time_us")
        if not isinstance(signature, Attention) or not time_us:
            raise InputError(f"the row {case.text('id')!r} is no attention with a time; give rows as of cudnn.csv")
        found.append((signature, time_us * 1e-6))
    return found


def errors(constants: AttentionConstants, name: str, found: Sequence[Point]) -> NDArray[np.float64]:
    """Logarithms of predicted over measured times, at the clocks of a step."""
    device = device_of(gpu(name))
    return np.array([np.log(seconds(signature, device, constants)[0] / time) for signature, time in found])


def fitted(start: AttentionConstants, name: str, found: Sequence[Point]) -> AttentionConstants:
    """Least squares of the errors within `_BOUNDS`."""
    low, high = np.array(list(_BOUNDS.values())).T
    first = np.clip([getattr(start, field) for field in _BOUNDS], low + 1e-3, high - 1e-3)

    def with_values(values: NDArray[np.float64]) -> AttentionConstants:
        return msgspec.structs.replace(start, **dict(zip(_BOUNDS, map(float, values))))

    solved = least_squares(
        lambda values: errors(with_values(values), name, found), first, bounds=(low, high), loss="soft_l1",
        f_scale=_USUAL_ERROR,
    )  # fmt: skip
    return with_values(solved.x)


def main() -> None:
    """Print the constants and their errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", metavar="GPU")
    parser.add_argument("precision", metavar="PRECISION", choices=("bfloat16", "fp8"))
    parser.add_argument("table", nargs="?", type=Path, default=Path(__file__).parent / "papers" / "cudnn.csv")
    arguments = parser.parse_args()
    rows = [
        row
        for row in OPERATORS.read(arguments.table)
        if (row["gpu"], row.get("precision")) == (arguments.gpu, arguments.precision)
    ]
    if not rows:
        raise InputError(f"there are no rows of {arguments.gpu} in {arguments.precision} in {arguments.table}")
    device = device_of(gpu(arguments.gpu))
    section = "cudnn" if arguments.precision == "bfloat16" else "cudnn-fp8"
    start, _ = find_constants(AttentionConstants, "attention", device.attention_generation, (section,))
    seen, unseen = ([row for row in rows if (row["model"] == _HELD_OUT) is held] for held in (False, True))
    found = fitted(start, arguments.gpu, points(seen))
    for field in _BOUNDS:
        print(f"{field} = {getattr(found, field):.4g}")
    for label, part in (("fitted", seen), (f"held out ({_HELD_OUT})", unseen)):
        off = np.abs(np.expm1(errors(found, arguments.gpu, points(part)))) if part else np.zeros(0)
        if len(off):
            middle, most = np.quantile(off, (0.5, 0.8))
            print(f"# {label}: {len(off)} points, {middle:.1%} off in the median, 80 of 100 within {most:.1%}")


if __name__ == "__main__":
    with sentences():
        main()
