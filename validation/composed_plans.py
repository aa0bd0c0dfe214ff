"""Compares composed pipelines with captured ones and writes ``results/composed-plans.md``.

``python validation/composed_plans.py [DIR]`` from the repository's root captures
``tests/integration/scripts/llama_pipeline.py`` on the emulated GPU, a few minutes on two cores, and keeps the captures
in DIR.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path

from presim.cli.script import sentences
from presim.composition.capture_comparison import work
from presim.composition.compose import compose
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.take import take
from presim.composition.plan import Plan
from presim.evaluation.evaluate_traces import evaluate
from presim.evaluation.options import EvaluationOptions, RunOptions
from presim.hardware.cluster_choice import choose_cluster
from presim.system.files import check_folder
from presim.trace import job_store
from presim.verbs.run import run_and_evaluate
from presim.verbs.simulate import evaluate_saved

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tests" / "integration" / "scripts" / "llama_pipeline.py"
OUT = Path(__file__).parent / "results" / "composed-plans.md"
SIZES = {
    "small": {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "vocab_size": 1024},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "vocab_size": 128256},
}
KEY_HEADS = {"small": 4, "8b": 8}
NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zero-bubble": "InterleavedZeroBubble"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A plan that is captured and composed."""

    size: str
    gpus: int
    stages: int
    schedule: str
    micros: int
    sequence: int
    layers: int = 8
    chunks: int = 1

    @property
    def name(self) -> str:
        """The plan as text."""
        chunks = f" x {self.chunks}" if self.chunks > 1 else ""
        return f"{self.size}, {self.layers} layers, {self.stages}{chunks} stages, {self.schedule}, {self.gpus} GPUs"


CASES = (
    Case("8b", 16, 4, "1f1b", 8, 4096, layers=32),
    Case("8b", 16, 4, "interleaved", 8, 4096, layers=32, chunks=2),
    Case("8b", 16, 4, "zero-bubble", 8, 4096, layers=32, chunks=2),
    Case("small", 4, 2, "1f1b", 4, 512),
    Case("small", 4, 2, "interleaved", 4, 512, chunks=2),
    Case("small", 4, 2, "zero-bubble", 4, 512, chunks=2),
)


def main() -> None:
    """Run all cases. Existing captures in the folder are reused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="captures are kept here")
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp(prefix="presim-plans-"))
    check_folder(folder)
    rows = [row(case, folder / f"{case.size}-{case.schedule}") for case in CASES]
    OUT.write_text(HEAD + "\n".join(rows) + "\n" + FOOT)


def row(case: Case, folder: Path) -> str:
    """One line of the table."""
    options = RunOptions(gpu="h100-sxm", world_size=case.gpus, steps=3)
    words = f"--size {case.size} --layers {case.layers} --stages {case.stages} --chunks {case.chunks}"
    words += f" --schedule {NAMES[case.schedule]} --micro-batches {case.micros} --sequence {case.sequence}"
    if not folder.exists():
        run_and_evaluate([str(SCRIPT), *words.split()], dataclasses.replace(options, save=str(folder)), stdout=2)
    captured = job_store.load(folder).traces
    theirs = evaluate_saved(folder, EvaluationOptions()).result
    cluster = choose_cluster(gpu="h100-sxm", world_size=case.gpus)
    job = compose(graph(case), plan(case), cluster)
    mine = evaluate(job, cluster).result
    ranks = {trace.manifest.rank: trace for trace in job.traces}
    same = sum(work(captured[rank]) == work(trace) for rank, trace in ranks.items())
    figures = (
        (theirs.step_time_s or 0.0, mine.step_time_s or 0.0, 1000.0, "ms"),
        (theirs.memory.peak_allocated_bytes, mine.memory.peak_allocated_bytes, 2.0**-30, "GiB"),
        (theirs.memory.peak_reserved_bytes, mine.memory.peak_reserved_bytes, 2.0**-30, "GiB"),
    )
    cells = [f"{a * scale:.2f}, {b * scale:.2f} {unit} ({b / a - 1:+.1%})" for a, b, scale, unit in figures]
    print(case.name, same, cells, flush=True)
    return f"| {case.name} | {same} of {len(ranks)} | {' | '.join(cells)} |"


def plan(case: Case) -> Plan:
    """The plan of the script."""
    data = case.gpus // case.stages
    return Plan(
        sequence=case.sequence,
        pipeline=case.stages,
        virtual=case.chunks,
        schedule=case.schedule,  # type: ignore[arg-type]
        global_batch=case.micros * data,
        clip=False,
    )


def graph(case: Case) -> OperatorGraph:
    """The model's graph."""
    fixed: dict[str, object] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    fixed["max_position_embeddings"] = 131072
    fixed["num_key_value_heads"] = KEY_HEADS[case.size]
    config = {**SIZES[case.size], **fixed, "num_hidden_layers": case.layers, "tie_word_embeddings": False}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config | {"use_cache": False}))
        return take(str(path))


HEAD = """# Composed pipelines beside captured ones

`python validation/composed_plans.py` makes this table: a Llama in stages of `torch.distributed.pipelining` with FSDP2
on emulated H100, captured, beside the same plan composed. Equal work counts the stages whose products, attention and
collectives (kind, bytes, ranks) are equal as multisets in the last step. Cells: captured, composed (error).

| plan | equal work | step time | peak allocated | peak reserved |
|---|---|---|---|---|
"""
FOOT = """
The small model waits for its host: host times are of a table in the composed step and measured, on a busy machine, in
the captured one. Names of differences: the script keeps the last stage's logits of all micro-batches and has no check
for packed sequences; autograd adds the first gradient of a stage out of place, composed stages in place.
"""

if __name__ == "__main__":
    with sentences():
        main()
