"""Writes the errors of learned prices of products for which only the shape is new, not the weight size.

    python validation/held_out_shapes.py AICONFIGURATOR SIMUMAX --out validation/results/operators-shapes.md
    python validation/held_out_shapes.py AICONFIGURATOR SIMUMAX --gpu b200 --sizes --trees 800 --leaves 127

The first arguments are checkouts of the datasets, as for `presim fit`. Each GPU's correction is fitted without a tenth
of the shapes and tested on these, which takes a few minutes. Options for experiments: one GPU only (``--gpu``), whole
weight sizes held out as in `presim fit` (``--sizes``), another number of trees and leaves. Packaged models are not
changed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.cost.fitting.boost import SizeLimits, limits_for
from presim.cost.fitting.fit_corrections import fit_class
from presim.cost.fitting.fit_prices import gather
from presim.cost.fitting.fit_samples import by_class
from presim.cost.fitting.split import Group, group_of, least_rows, shape_of
from presim.cost.learned.learned_model_file import HeldOut, LearnedModel
from presim.errors import InputError
from presim.system.files import check_writable, write_file

CLASS = "gemm-half"
GPUS = ("h100-sxm", "h200", "a100-80gb-sxm", "b200")
ABOUT = """# Learned prices of single products that no fit has seen

Written by `validation/held_out_shapes.py`. Here a tenth of the shapes (m, n, k) is held out one by one, while others of
the same n and k may be in the fit, as where a model's own layers were measured with another number of tokens.
[operators-learned.md](operators-learned.md) holds out weights' sizes whole, which is harder. Products in bf16; mean
absolute errors relative to what was measured, of all rows and of those that were fitted (without rows that two other
sources contradict, and with a slower machine's level taken off).

| GPU | points | formula | learned | median | what was fitted: points | learned |
|---|---:|---:|---:|---:|---:|---:|
"""


def row(model: LearnedModel) -> str:
    """Figures of one GPU."""
    parts = {part.name: part for part in model.held_out}
    shown: HeldOut = parts.get("in bfloat16") or parts["all"]
    fitted = parts.get("of what was fitted") or shown
    shares = " | ".join(f"{share:.1%}" for share in (shown.analytic_mape, shown.mape, shown.median))
    return f"| {model.gpu} | {shown.points} | {shares} | {fitted.points} | {fitted.mape:.1%} |"


def rows(folders: list[Path], gpus: Sequence[str], group: Group, limits: SizeLimits | None) -> Iterator[str]:
    """Fit each GPU's class without the shapes that test it.

    Raises:
        InputError: the folders have too few rows of a GPU.
    """
    measured, sources = gather(folders, sys.maxsize, lambda text: print(text, file=sys.stderr))
    classes = by_class(measured)
    lacking = [gpu for gpu in gpus if len(classes.get((CLASS, gpu), ())) < least_rows(CLASS)]
    if lacking:
        raise InputError(
            f"too few products in half precision of {', '.join(lacking)}: each of {', '.join(gpus)} needs "
            f"{least_rows(CLASS)}; give checkouts of both datasets"
        )
    for gpu in gpus:
        yield row(fit_class(CLASS, gpu, classes[CLASS, gpu], sources, group=group, limits=limits)[0])


def main() -> None:
    """Read, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="the page; without it, the rows are printed")
    parser.add_argument("--gpu", action="append", choices=GPUS)
    parser.add_argument("--sizes", action="store_true", help="hold out weights' sizes whole")
    parser.add_argument("--trees", type=int, help="of the correction; with --leaves")
    parser.add_argument("--leaves", type=int, default=127)
    given = parser.parse_args()
    if given.out:
        check_writable(given.out)
    limits = dataclasses.replace(limits_for(sys.maxsize), trees=given.trees, leaves=given.leaves)
    lines = rows(given.data, given.gpu or GPUS, group_of if given.sizes else shape_of, limits if given.trees else None)
    if given.out:
        write_file(given.out, (ABOUT + "\n".join(lines) + "\n").encode())
    else:
        print(*lines, sep="\n")


if __name__ == "__main__":
    with sentences():
        main()
