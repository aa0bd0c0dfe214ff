"""Splits the error of predicting recorded steps: a page over the profiles of a folder (`presim validate --oracle`).

    python validation/recordings.py TRACELENS/tests/traces --out validation/results/recordings.md

The folder is that of github.com/AMD-AGI/TraceLens (MIT) for the committed page. ``--gpu`` names the GPU of profiles
that do not say it: of those whose path contains WORD. Takes ten seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError
from presim.sources.source import SourceRequest
from presim.studies.validation.oracle import OracleSplit, split_error
from presim.system.files import check_writable, write_file

_HEAD = """# Recorded steps, and where their prediction is off

`python validation/recordings.py TRACELENS/tests/traces` wrote this page from the profiles of
[TraceLens](https://github.com/AMD-AGI/TraceLens). The structure of each step and its host time are recorded; measured
times are replaced by predicted ones from left to right
([how](../../docs/guide/validate.md#split-the-error-by-a-recording)). The columns are parts of the measured step and add
up to its error. The last column is the error of the kernels' sum, whether the host hides it or not.

Where "missing" is most of the step, the profile is of an idle engine or of graphs whose kernels the profiler stretched.
Kernels without shapes are guessed from their launch, and their error is large.

| profile | GPU | step ms | replay | missing | prices | communication | overlap | error | kernels ms | off |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""


def row(path: Path, split: OracleSplit) -> str:
    """A recording as a row of the page."""
    parts = " | ".join(f"{part.seconds / split.measured_s:+.1%}" for part in split.parts)
    measured_s = sum(family.measured_s for family in split.families)
    predicted_s = sum(family.predicted_s for family in split.families)
    name, error = path.name.removesuffix(".json.gz"), split.predicted_s / split.measured_s - 1
    step = f"| {path.parent.name}/{name} | {split.gpu} | {split.measured_s * 1e3:.3f} | {parts} | {error:+.1%}"
    return f"{step} | {measured_s * 1e3:.3f} | {predicted_s / measured_s - 1:+.1%} |"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--gpu", action="append", default=[], metavar="WORD=ID")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    paths = sorted(options.folder.rglob("*.json.gz"))
    if not paths:
        raise InputError(f"{options.folder} has no profiles (*.json.gz); give a folder of TraceLens's traces")
    check_writable(options.out)
    gpus = dict(text.partition("=")[::2] for text in options.gpu)
    lines, refused = [], []
    for path in paths:
        gpu = next((gpu for word, gpu in gpus.items() if word in str(path)), None)
        try:
            lines.append(row(path, split_error([path], SourceRequest(gpu=gpu))))
        except InputError as error:
            refused.append(f"- {path.parent.name}/{path.name}: {str(error).replace(str(options.folder), '…')}")
    if not lines:
        raise InputError(f"no profile below {options.folder} can be split; the first: {refused[0].removeprefix('- ')}")
    tail = ["", "Not split:", "", *refused] if refused else []
    write_file(options.out, (_HEAD + "\n".join([*lines, *tail]) + "\n").encode())


if __name__ == "__main__":
    with sentences():
        main()
