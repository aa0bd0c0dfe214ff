"""Writes the errors of learned prices on held-out shapes, as recorded in the packaged model files.

    python validation/held_out.py --out validation/results/operators-learned.md

`presim fit` holds out a tenth of the shapes of every class and records the errors in each file. This script formats
them as tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from presim.cli.script import sentences
from presim.cost.learned.learned_estimator import PACKAGED
from presim.cost.learned.learned_model_file import HeldOut, LearnedModel, read
from presim.system.files import write_file

ABOUT = """# Learned prices on shapes that no fit has seen

Written by `validation/held_out.py` from the packaged model files, into which `presim fit` put these figures. Mean
absolute errors relative to what was measured, of the formula alone and with the learned correction; the median of the
latter; the share of points within the stated 80 % interval. A shape is held out as a whole: no row with its weights'
sizes, heads or elements was in the fit. Prices are of single kernels, as tables are made, not of a busy GPU.

*All sources* includes those that were left out of the fit or ran slower (vidur's products beside aiconfigurator's,
SimuMax's B200 as it is): the interval has to cover them, and the error without them is in
*what was fitted*. Sources that measured the same work on the same GPU disagree by as much as the difference. Where a
class has rows in two data types, each has a line: products in fp16 are all vidur's, those in bf16 are the others.
"""


def tables(models: list[LearnedModel]) -> Iterator[str]:
    """Tables per class and GPU, and per source and duration."""
    yield from ("", "## By class and GPU", "")
    yield "| class | GPU | points | formula | learned | median | within stated | what was fitted: points | learned |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for model in models:
        parts = {part.name: part for part in model.held_out}
        if "all" in parts:
            fitted = parts.get("of what was fitted")
            own = f"{fitted.points} | {percent(fitted.mape)}" if fitted else " | "
            yield f"| {model.kind} | {model.gpu} | {figures(parts['all'])} | {own} |"
        for part in model.held_out:
            if part.name.startswith("in "):
                yield f"| {model.kind}, {part.name[3:]} alone | {model.gpu} | {figures(part)} | | |"
    yield from ("", "## By source and length", "")
    yield "| class | GPU | of these | points | formula | learned | median | within stated |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for model in models:
        for part in model.held_out:
            if part.name not in ("all", "of what was fitted") and not part.name.startswith("in "):
                yield f"| {model.kind} | {model.gpu} | {part.name} | {figures(part)} |"


def figures(part: HeldOut) -> str:
    """Points and four shares."""
    shares = (part.analytic_mape, part.mape, part.median, part.within)
    return " | ".join([str(part.points), *map(percent, shares)])


def percent(share: float) -> str:
    """A percentage with one decimal."""
    return f"{100 * share:.1f} %"


def sources(models: list[LearnedModel]) -> Iterator[str]:
    """Every dataset once, with the number of unused rows."""
    yield from ("", "## Datasets", "")
    found = {source.name: source for model in models for source in model.sources}
    for name, source in sorted(found.items()):
        yield f"- {name} {source.commit}: {source.rows} rows"
        yield from (f"  - {count} left out: {reason}" for reason, count in source.rejected.items())


def text() -> str:
    """The whole page."""
    models = [read(path) for path in sorted(PACKAGED.glob("*.json"))]
    return ABOUT + "\n".join([*tables(models), *sources(models)]) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    write_file(parser.parse_args().out, text().encode())


if __name__ == "__main__":
    with sentences():
        main()
