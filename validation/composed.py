"""Composed jobs beside captured ones: products, attention and collectives as multisets, step time, peak memory.

    python validation/composed.py FOLDER [--only WORD]

Captures `recipes/hf_fsdp2.py` with published models that have fewer blocks, once each, into FOLDER; composes the same
by `presim compose --like`; writes `results/composed-vs-captured.md`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from pathlib import Path

from presim.cli.script import sentences
from presim.compose.compare import Agreement
from presim.errors import InputError
from presim.files import check_folder
from presim.graph.take import config_file
from presim.options import EvaluationOptions
from presim.verbs.compose import compose_like

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "validation" / "results" / "composed-vs-captured.md"


@dataclasses.dataclass(frozen=True)
class Case:
    """A job of FSDP2."""

    model: str
    blocks: int
    gpu: str
    gpus: int
    sequence: int
    batch: int = 1
    recompute: bool = False

    @property
    def name(self) -> str:
        """What tells it from others, as a folder's name."""
        kept = "recomputed" if self.recompute else "kept"
        return f"{self.model}-{self.blocks}-{self.gpu}-{self.gpus}-{self.batch}x{self.sequence}-{kept}"


CASES = (
    Case("llama3-8b", 8, "h100-sxm", 8, 4096),
    Case("llama3-70b", 4, "h100-sxm", 64, 4096),
    Case("llama3-1b", 16, "h100-sxm", 8, 4096, 2),
    Case("qwen3-0.6b", 8, "h100-sxm", 8, 2048, 4),
    Case("mistral-7b", 4, "h100-sxm", 16, 8192),
    Case("gpt2-xl", 6, "h100-sxm", 8, 1024, 4),
    Case("qwen3-30b-a3b", 4, "h100-sxm", 16, 4096),
    Case("mixtral-8x7b", 2, "h100-sxm", 16, 4096),
    Case("deepseek-v3", 4, "h200", 64, 2048),
)


def config(case: Case, folder: Path) -> Path:
    """The model's config with fewer blocks."""
    known = json.loads((config_file(case.model) or Path()).read_bytes())
    known.pop("presim_source")
    known["n_layer" if "n_layer" in known else "num_hidden_layers"] = case.blocks
    path = folder / f"{case.model}-{case.blocks}.json"
    path.write_text(json.dumps(known))
    return path


def capture(case: Case, model: Path, folder: Path) -> Path:
    """The folder of the captured job; captured only once.

    Raises:
        InputError: it cannot be captured.
    """
    kept = folder / case.name
    if (kept / "job.json").exists():
        return kept
    script = ROOT / "validation" / "recipes" / "hf_fsdp2.py"
    arguments = [str(model), "--sequence", str(case.sequence), "--batch", str(case.batch)]
    arguments += ["--checkpoint"] if case.recompute else []
    cluster = ["--gpu", case.gpu, "--world-size", str(case.gpus)]
    command = [sys.executable, "-m", "presim", "run", "--quiet", *cluster, "--check", "0", "--save", str(kept)]
    ended = subprocess.run([*command, str(script), *arguments], check=False, capture_output=True, text=True)
    if not (kept / "job.json").exists():
        raise InputError(f"{case.name} cannot be captured: {(ended.stderr.strip().splitlines() or ['no reason'])[-1]}")
    return kept


def row(case: Case, agreement: Agreement) -> str:
    """A line of the table."""
    figures = [f"{agreement.error(name):+.2%}" for name in ("step time", "peak allocated", "peak reserved")]
    captured = next(one.captured for one in agreement.figures if one.name == "step time")
    work = "equal" if agreement.same_work else f"{len(agreement.differences)} signatures differ"
    how = "recomputed" if case.recompute else "kept"
    job = f"{case.model}, {case.blocks} blocks | {case.gpus} {case.gpu} | {case.batch} x {case.sequence}, {how}"
    return f"| {job} | {work} | {captured:.4f} s | {' | '.join(figures)} |"


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="cases whose name has this in it; prints instead of writing")
    options = parser.parse_args()
    check_folder(options.folder)
    options.folder.mkdir(parents=True, exist_ok=True)
    found: list[tuple[Case, Agreement]] = []
    missed: list[str] = []
    for case in CASES:
        if options.only not in case.name:
            continue
        model = config(case, options.folder)
        try:
            kept = capture(case, model, options.folder)
            found.append((case, compose_like(str(model), kept, {}, EvaluationOptions())[1]))
        except InputError as error:
            missed.append(f"- {case.name}: {error}")
        print(missed[-1] if missed and case.name in missed[-1] else row(*found[-1]), flush=True)
    if not options.only:
        RESULT.write_text(table(found, missed))


def table(found: list[tuple[Case, Agreement]], missed: list[str]) -> str:
    """The page."""
    lines = [
        "# Composed beside captured",
        "",
        "`presim compose --like` of captures of `validation/recipes/hf_fsdp2.py`, written by `validation/composed.py`. "
        "Errors are composed over captured.",
        "",
        "| model | GPUs | samples x tokens | products, attention, collectives | step time, captured | step time | "
        "peak allocated | peak reserved |",
        "|---|---|---|---|---|---|---|---|",
        *(row(case, agreement) for case, agreement in found),
        "",
    ]
    for name in ("step time", "peak allocated", "peak reserved"):
        errors = [abs(agreement.error(name)) for _, agreement in found]
        lines.append(f"- {name}: median error {statistics.median(errors):.2%}, largest {max(errors):.2%}.")
    differing = [
        f"- {case.name}: {one.signature}: {one.captured} captured, {one.composed} composed"
        for case, agreement in found
        for one in agreement.differences
    ]
    lines += ["", "## Work that differs", "", *(differing or ["None."])]
    if missed:
        lines += ["", "## Not compared", "", *missed]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    with sentences():
        main()
