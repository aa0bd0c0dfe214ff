"""Compares the KV cache that presim lays out with published start-up logs of vLLM.

    python validation/engine_memory.py --configs DIR --write validation/results/engine-memory.md

DIR has published configurations of models that presim does not name, as ORGANISATION--MODEL/config.json; a log of
another model is left out. Qwen3.5-27B, 3.6-27B and 3.8-27B have the same layers, so one configuration stands for them.
`validation/engine_logs.csv` has the logs: where one was published, the engine's version (empty: the newest), GPU,
model, type of the weights (empty: the checkpoint's), options that differ from the engine's defaults, and what the log
says: GiB of cache on a GPU ("Available KV cache memory"), tokens ("GPU KV cache size"), or pages.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from presim.cli.script import sentences
from presim.errors import InputError
from presim.hardware import catalogue
from presim.serving.defaults import with_defaults
from presim.serving.drafting import drafting_of
from presim.serving.kv.startup import asked_length
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.engine_memory import lay_out
from presim.serving.weight_types import typed
from presim.system.files import check_writable, decode_csv, read_text, write_file
from presim.units import GIB

LOGS = Path(__file__).parent / "engine_logs.csv"
_HEAD = """# KV cache: laid out beside start-up logs of vLLM

Made by `python validation/engine_memory.py --configs DIR --write FILE` from `validation/engine_logs.csv`.
A row is measured by tokens where the log has them, else by GiB or pages.

| log | vLLM | GPU | model | options | log says | presim | error |
|---|---|---|---|---|---:|---:|---:|
"""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What a log says, and what presim lays out, in the same unit."""

    row: Mapping[str, str]
    measured: float
    predicted: float
    unit: str

    @property
    def error(self) -> float:
        """Relative error."""
        return self.predicted / self.measured - 1

    @property
    def line(self) -> str:
        """A line of the table."""
        row, digits = self.row, 2 if self.unit == "GiB" else 0
        cells = [row["source"], row["version"] or "newest", row["gpu"], row["model"].split("/")[-1], row["options"]]
        values = [f"{value:,.{digits}f} {self.unit}" for value in (self.measured, self.predicted)]
        return f"| {' | '.join([*cells, *values, f'{self.error:+.1%}'])} |"


def compare(row: Mapping[str, str], configs: Path | None) -> Comparison:
    """One log beside presim's layout."""
    folder = configs / row["model"].replace("/", "--") if configs else None
    model = find(str(folder) if folder is not None and folder.is_dir() else row["model"])
    gpu = catalogue.gpu(row["gpu"])
    fields: dict[str, Any] = {"engine_version": row["version"] or None}
    fields |= dict(_option(word) for word in row["options"].split())
    weights: Any = row["weights"] or None
    plan = typed(with_defaults(fields, model, gpu), model, weights, None)
    memory = lay_out(model, plan, gpu)
    if row["tokens"]:
        return Comparison(row, float(row["tokens"]), memory.tokens(asked_length(model, plan)), "tokens")
    if row["pages"]:
        return Comparison(row, float(row["pages"]), memory.blocks, "pages")
    return Comparison(row, float(row["cache_gib"]), memory.cache / GIB, "GiB")


def _option(word: str) -> tuple[str, Any]:
    """A field of a plan and its value."""
    name, _, value = word.partition("=")
    kinds = {field.name: str(field.type) for field in dataclasses.fields(ServingPlan)}
    if name == "drafting":
        method, _, tokens = value.partition(":")
        return name, drafting_of(method, int(tokens), None, None)
    if name not in kinds:
        raise InputError(f"{name} is no field of a plan; correct validation/engine_logs.csv")
    if "int" in kinds[name]:
        return name, int(value)
    return name, {"float": float, "bool": lambda text: text == "1"}.get(kinds[name], str)(value)


def comparisons_of(rows: Iterable[Mapping[str, str]], configs: Path | None) -> list[Comparison]:
    """All logs whose model is found; prints the others."""
    comparisons = []
    for row in rows:
        try:
            comparisons.append(compare(row, configs))
        except InputError as error:
            print(f"{row['source']} is left out: {error}", file=sys.stderr)
    return comparisons


def table(comparisons: Sequence[Comparison]) -> str:
    """All logs, and their summary."""
    sizes = [abs(comparison.error) for comparison in comparisons]
    near = sum(size <= 0.03 for size in sizes)
    summary = f"{near} of {len(sizes)} within 3 %; median error {statistics.median(sizes):.1%}.\n"
    return _HEAD + "".join(f"{comparison.line}\n" for comparison in comparisons) + "\n" + summary


def main() -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the table to this file")
    parser.add_argument("--configs", type=Path, help="folder of ORGANISATION--MODEL/config.json")
    arguments = parser.parse_args()
    if arguments.write:
        check_writable(arguments.write)
    if arguments.configs and not arguments.configs.is_dir():
        raise InputError(f"there is no folder {arguments.configs} of configurations; name one or leave out --configs")
    columns = ("source", "version", "gpu", "model", "weights", "options", "cache_gib", "tokens", "pages")
    rows = decode_csv(read_text(LOGS, "it is part of the checkout"), columns)
    text = table(comparisons_of(rows, arguments.configs))
    if arguments.write:
        write_file(arguments.write, text.encode())
    else:
        print(text)


if __name__ == "__main__":
    with sentences():
        main()
