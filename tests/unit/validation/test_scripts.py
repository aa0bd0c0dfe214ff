"""Scripts of the checkout that are handed what they cannot use end as the verbs do: one sentence, exit code 2."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from presim.errors import InputError

ROOT = Path(__file__).parents[3]
CASES = "validation/papers/torchsim.csv"
ON_KEPT_RUNS = ("ablation", "host_factors", "host_per_step", "intervals", "product_share")
ON_CAPTURES = ("host_repeats", "known_stretches")
DATASETS = ("aiconfigurator", "neusight", "vidur", "frontier", "simumax", "vtrain", "echo")
OUT = ("--out", "{tmp}/page.md")
NEED_GPU = ("steps", "overlap", "energy", "latencies", "quantised", "serving")


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """An empty folder, a CSV without the columns, a folder that has it under names that scripts look for."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    for name in ("merge/output/merged_features.csv", "data/dataset/test/linear.csv"):
        path = tmp_path / "wrong" / name
        path.parent.mkdir(parents=True)
        path.write_text("a,b\n1,2\n")
    for name in ("steps.jsonl", "overlap.jsonl", "energy.jsonl"):
        (tmp_path / "wrong" / name).write_text('{"a": 1}\n')
    return tmp_path


def ended(
    script: str, given: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str
) -> str:
    """The sentence that a script leaves, which exits with 2 and leaves no file."""
    path = ROOT / f"{script}.py"
    before = {file: file.stat().st_mtime_ns for file in given.rglob("*")}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [str(path), *(arg.replace("{tmp}", str(given)) for arg in args)])
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    assert end.value.code == 2
    assert {file: file.stat().st_mtime_ns for file in given.rglob("*")} == before
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f"{path.name}: ")
    return said[-1].removeprefix(f"{path.name}: ").replace(str(given), "{tmp}")


BAD = [
    *((f"validation/{name}", (), "error: the following arguments are required") for name in ON_KEPT_RUNS + ON_CAPTURES),
    *(
        (f"validation/{name}", ("{tmp}/no.csv", "--captures", "{tmp}/empty"), "cannot read {tmp}/no.csv: No such")
        for name in ON_KEPT_RUNS
    ),
    *(
        (f"validation/{name}", ("{tmp}/other.csv", "--captures", "{tmp}/empty"), "{tmp}/other.csv has no column 'id'")
        for name in ON_KEPT_RUNS
    ),
    *(
        (f"validation/{name}", (CASES, "--captures", "{tmp}/no"), "there is no folder {tmp}/no of captures")
        for name in ON_KEPT_RUNS
    ),
    *(
        (f"validation/{name}", (CASES, "--captures", "{tmp}/empty"), "of 61 cases none has both a measured step_time_s")
        for name in ON_KEPT_RUNS
    ),
    ("validation/intervals", (CASES, "--captures", "{tmp}", "--recipes", "{tmp}/no"), "there is no folder {tmp}/no of"),
    ("validation/ablation", (CASES, "--captures", "{tmp}", "--prices", "{tmp}/no"), "there is no folder {tmp}/no with"),
    (
        "validation/headlines/maya_space",
        ("--nodes", "3", *OUT),
        "--nodes 3: 512 samples must divide among 8 GPUs a node",
    ),
    ("validation/headlines/run", ("spoon", *OUT), "no paper is called 'spoon': there are torchsim, maya, phantora"),
    ("validation/moe_fabrics", ("--nodes", "6", *OUT), "--nodes 6: 32 experts' ranks are on four nodes; give a"),
    ("validation/moe_fabrics", ("--model", "spoon", "--nodes", "4", *OUT), "`presim compose spoon --cluster "),
    ("validation/recordings", ("{tmp}/empty", *OUT), "{tmp}/empty has no profiles (*.json.gz); give a folder"),
    ("validation/energy", ("--only", "spoon", *OUT), "no run is called 'spoon': there are olmo2-7b"),
    ("validation/kills", ("--verb", "spoon", *OUT), "no verb is called 'spoon': there are run, import"),
    ("validation/reliability", ("--kind", "spoon", *OUT), "no kind is called 'spoon': there are job, rank"),
    ("validation/captured_steps", ("nothing", *OUT), "unknown model 'nothing'. `presim models` lists the names. "),
    ("validation/sampled_again", ("draw", "{tmp}/no.csv", *OUT), "cannot read {tmp}/no.csv: No such"),
    ("validation/sampled_again", ("draw", "{tmp}/other.csv", *OUT), "{tmp}/other.csv has no column 'id'"),
    ("validation/sampled_again", ("compare", "{tmp}/other.csv", *OUT), "{tmp}/other.csv has no column 'id'"),
    ("validation/prefill_study", ("--out", "{tmp}/no/a"), "cannot write {tmp}/no/a: there is no such"),
    ("validation/engine_memory", ("--write", "{tmp}/no/a"), "cannot write {tmp}/no/a: there is no such"),
    ("validation/engine_memory", ("--configs", "{tmp}/no"), "there is no folder {tmp}/no of configurations"),
    ("validation/serving_history", (), "name a table that presim validate --kind serving --out wrote, or give --draw"),
    ("validation/serving_history", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such"),
    ("validation/serving_history", ("{tmp}/other.csv",), "{tmp}/other.csv has no column 'framework'"),
    ("validation/choices", ("{tmp}/no.csv", *OUT), "cannot read {tmp}/no.csv: No such"),
    ("validation/choices", ("{tmp}/other.csv", *OUT), "{tmp}/other.csv has no column 'id'"),
    ("validation/choices", (CASES, *OUT), "no two of 61 cases differ only in their plan"),
    ("validation/controller_order", ("{tmp}/no",), "cannot read {tmp}/no/verl/trainer/ppo/ray_trainer.py: No such"),
    ("validation/controller_batches", ("{tmp}/no.csv",), "error: unrecognized arguments: {tmp}/no.csv"),
    ("validation/rl_steps", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such"),
    ("validation/weight_syncs", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such"),
    (
        "validation/convnets",
        ("{tmp}/no.csv", "--captures", "{tmp}/jobs"),
        "there is no table {tmp}/no.csv; validation/co",
    ),
    ("validation/sglang_rollouts", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such"),
    ("validation/rl_placements", ("{tmp}/no", "{tmp}"), "there is no folder {tmp}/no of recipes"),
    ("validation/rl_steps", ("{tmp}/other.csv",), "{tmp}/other.csv has no column 'id'"),
    ("validation/two_fidelities", ("--keep", "{tmp}/other.csv", *OUT), "{tmp}/other.csv has a line that is no capture"),
    ("validation/host_repeats", ("{tmp}/no",), "there is no folder {tmp}/no of captures"),
    ("validation/host_repeats", ("{tmp}/empty",), "there are no captures in {tmp}/empty; presim validate"),
    ("validation/known_stretches", ("{tmp}/empty", *OUT), "there are no captures in {tmp}/empty; presim validate"),
    ("validation/known_stretches", ("{tmp}/empty", "--out", "{tmp}/no/a"), "cannot write {tmp}/no/a: there is no such"),
    (
        "validation/long_stretches",
        ("--spin", "-1"),
        "error: argument --spin: -1 is no number of processes; give 0 or more",
    ),
    ("validation/operators", (), "no dataset is named; give at least one of --aiconfigurator, --neusight"),
    ("validation/collectives", (), "no dataset is named; give at least one of --aiconfigurator, --vidur"),
    *(
        ("validation/operators", (f"--{name}", f"{{tmp}}/{folder}"), f"--{name} {{tmp}}/{folder}")
        for name in DATASETS
        for folder in ("no", "empty")
    ),
    ("validation/operators", ("--neusight", "{tmp}/wrong"), "--neusight {tmp}/wrong is no such dataset: a table of it"),
    ("validation/collectives", ("--nccl-csv", "{tmp}/no"), "--nccl-csv {tmp}/no: {tmp}/no cannot be read (No such"),
    ("validation/collectives", ("--nccl-csv", "{tmp}/other.csv"), "--nccl-csv {tmp}/other.csv is no such dataset"),
    ("validation/collectives", ("--echo", "{tmp}", "--out", "{tmp}"), "cannot write {tmp}: it is a directory"),
    ("validation/overlap", ("{tmp}/empty",), "{tmp}/empty: {tmp}/empty/merge/output/merged_features.csv cannot be"),
    ("validation/overlap", ("{tmp}/wrong",), "{tmp}/wrong is no such dataset: a table of it has no 'kShortName'"),
    ("validation/overlap", ("{tmp}/empty", "--out", "{tmp}/no/a"), "cannot write {tmp}/no/a: there is no such"),
    ("validation/held_out", ("--out", "{tmp}/no/a"), "cannot write {tmp}/no/a"),
    ("validation/deploy_study", (), "error: the following arguments are required"),
    ("validation/deploy_consistency", (), "error: the following arguments are required"),
    ("validation/deploy_consistency", ("--rows", "{tmp}/no/rows.json", *OUT), "cannot write {tmp}/no/rows.json"),
    (
        "validation/deploy_study",
        ("--aiconfigurator", "{tmp}/no", "--rows", "{tmp}/rows.json", *OUT),
        "there is no program {tmp}/no: install aiconfigurator into an environment of its own",
    ),
    ("validation/disagreement", (), "error: the following arguments are required"),
    ("validation/disagreement", ("{tmp}/no",), "there is no folder {tmp}/no; name a table"),
    ("validation/disagreement", ("{tmp}/empty",), "{tmp}/empty is none of the datasets presim reads"),
    ("validation/held_out_shapes", ("{tmp}/no", *OUT), "there is no folder {tmp}/no; name a table"),
    ("validation/held_out_shapes", ("{tmp}/empty", *OUT), "{tmp}/empty is none of the datasets presim reads"),
    ("validation/fit_deepep", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such file"),
    ("validation/fit_rccl", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such file"),
    ("validation/fit_rccl", ("{tmp}/other.csv",), "{tmp}/other.csv has no column 'gpu'"),
    ("validation/gpu/fit_packed_weights", ("{tmp}/empty",), "{tmp}/empty: no serving.jsonl has products of 4-bit"),
    (
        "validation/request_times",
        ("--csv", "{tmp}/other.csv"),
        "--csv replaces the table of one run; name it with --run",
    ),
    (
        "validation/request_times",
        ("--run", "qwen3-32b", "--csv", "{tmp}/other.csv"),
        "{tmp}/other.csv is no table with the columns input",
    ),
    ("validation/request_times", ("--prices", "{tmp}/no"), "there is no folder {tmp}/no with prices"),
    ("validation/fit_experts", ("{tmp}/empty",), "{tmp}/empty has no data/GPU/moe tables; name the folder of aiconf"),
    ("validation/attention", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such file"),
    ("validation/attention", ("validation/papers/attention.csv",), "a row has no library_version; each needs gpu, lib"),
    ("validation/fit_attention", ("gb300", "fp8", "{tmp}/no.csv"), "cannot read {tmp}/no.csv: No such file"),
    ("validation/fit_attention", ("a100-40gb-sxm", "fp8"), "there are no rows of a100-40gb-sxm in fp8 in"),
    ("validation/torch_versions", ("{tmp}/other.csv",), "cannot write to {tmp}/other.csv: {tmp}/other.csv is a file"),
    ("validation/gpu/campaign", ("--out", "{tmp}/no", "--parts", "naps"), "--parts naps: there is no part 'naps'"),
    ("validation/gpu/campaign", ("--out", "{tmp}/other.csv"), "cannot write to {tmp}/other.csv"),
    *(
        (f"validation/gpu/compare{cases}", (), "error: the following arguments are required: DIR")
        for cases in ("", "_cases")
    ),
    ("validation/gpu/compare_cases", ("{tmp}/empty",), "{tmp}/empty has none of energy.jsonl, latencies.jsonl, quanti"),
    ("validation/gpu/compare_cases", ("{tmp}/wrong",), "{tmp}/wrong/energy.jsonl: line 1 has no 'case'"),
    ("validation/gpu/softmax_rows", ("{tmp}/empty", *OUT), "{tmp}/empty is no checkout of NeuSight; name its folder"),
    ("validation/gpu/step_operators", (), "error: the following arguments are required"),
    ("validation/gpu/step_operators", ("{tmp}/other.csv", *OUT), "{tmp}/other.csv is a file; name a folder of saved"),
    ("validation/gpu/compare", ("{tmp}/no",), "{tmp}/no holds nothing that was measured"),
    ("validation/gpu/compare", ("{tmp}/empty",), "{tmp}/empty holds nothing that was measured"),
    ("validation/gpu/compare", ("{tmp}/wrong",), "{tmp}/wrong/steps.jsonl: line 1 has no 'arguments'"),
    ("validation/gpu/compare_serving", ("{tmp}/no",), "{tmp}/no holds no serving.jsonl; name the folder that campaign"),
    *(
        (f"benchmarks/{name}", (*rest, "--runs", runs), f"error: argument --runs: {runs} is no number of times; give 1")
        for name, rest in (("commands", ()), ("frameworks", ("megatron",)), ("live", ()), ("live_agreement", ("tiny",)))
        for runs in ("0", "-1", "x")
    ),
    ("benchmarks/capture_step", ("--pairs", "0"), "error: argument --pairs: 0 is no number of times; give 1 or more"),
    ("benchmarks/many_ranks", ("--ranks", "0"), "error: argument --ranks: 0 is no number of ranks; give 1 or more"),
    ("benchmarks/frameworks", ("no",), "error: there is no row no; there are torchtitan, megatron"),
    ("benchmarks/added_time", ("no",), "error: there is no row no; there are torch, transformers"),
    ("benchmarks/live_agreement", ("no",), "error: there is no row no; there are torchtitan, megatron, tiny"),
    ("benchmarks/app_page", ("--opens", "0"), "error: argument --opens: 0 is no number of times; give 1 or more"),
    ("validation/astra_sim", (), "error: the following arguments are required: binary"),
    ("benchmarks/cost_gate", ("--only", "no"), "the README has no command of no; there are run, simulate"),
    ("benchmarks/every", ("no",), "error: no is none of commands, frameworks"),
    ("benchmarks/guides", ("no",), "error: there is no page no; there are "),
    ("benchmarks/run_ahead", ("no-such-row",), "error: there is no row no-such-row; there are gpt2_ddp.py"),
    (
        "benchmarks/growth",
        ("--worlds", "12"),
        "error: argument --worlds: 12 are no ascending multiples of 8 GPUs from 16 on",
    ),
    (
        "benchmarks/growth",
        ("--verbs", "no"),
        "error: argument --verbs: no is none of run, compose, search, serve, deploy,",
    ),
    ("benchmarks/growth", ("--limit", "0"), "error: argument --limit: 0 is no number of seconds; give 1 or more"),
    ("benchmarks/search", ("no",), "no is no model that is known by name"),
    *(
        (f"benchmarks/{name}", ("no",), "error: unrecognized arguments: no")
        for name in ("differing_ranks", "engine", "graphs", "growth", "learned_prices", "plans", "scale", "world_size")
    ),
    ("validation/composed", ("{tmp}/other.csv",), "cannot write to {tmp}/other.csv: {tmp}/other.csv is a file"),
    ("validation/composed_hosts", ("{tmp}/empty",), "{tmp}/empty has no captured job; make them with"),
    ("validation/composed_plans", ("{tmp}/other.csv",), "cannot write to {tmp}/other.csv: {tmp}/other.csv is a file"),
    ("validation/megatron_recipes", ("{tmp}/empty",), "{tmp}/empty has no src/megatron/bridge/perf_recipes; name a"),
    ("validation/block_plans", ("--only", "nothing"), "no plan contains 'nothing'; plans are FSDP2"),
    ("validation/trainer_plans", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such file"),
    ("validation/trainer_plans", ("{tmp}/other.csv",), "{tmp}/other.csv has no column 'id'"),
    ("validation/framework_choices", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such file"),
    ("validation/framework_choices", ("{tmp}/other.csv",), "{tmp}/other.csv has no column 'id'"),
    ("validation/framework_plans", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such file"),
    ("validation/framework_plans", ("{tmp}/other.csv",), "{tmp}/other.csv has no column 'id'"),
    ("validation/largest_left_out", ("--out", "{tmp}/no/a"), "cannot write {tmp}/no/a: there is no such directory"),
    ("docs/validation", ("{tmp}/no.csv",), "cannot read {tmp}/no.csv: No such file"),
    ("docs/validation", ("{tmp}/other.csv",), "{tmp}/other.csv has no column 'id'"),
]


@pytest.mark.parametrize(("script", "args", "sentence"), BAD)
def test_unusable_input_is_reported_in_a_sentence(
    script: str,
    args: tuple[str, ...],
    sentence: str,
    given: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ended(script, given, capsys, monkeypatch, *args).startswith(sentence)


@pytest.mark.skipif(os.access("/dev/nvidia0", os.F_OK), reason="there is a GPU")
@pytest.mark.parametrize(
    ("script", "args"),
    [
        ("campaign", ("--out", "{tmp}/no")),
        ("steps", ("{tmp}/other.csv",)),
        *((name, ("{tmp}/no", "1")) for name in NEED_GPU[1:]),
    ],
)
def test_a_machine_without_a_gpu_measures_nothing(
    script: str, args: tuple[str, ...], given: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's libraries may not even be there; what a later call would take for measured is not written."""
    ended(f"validation/gpu/{script}", given, capsys, monkeypatch, *args)


def test_every_script_is_tried() -> None:
    """Those that can be called, by what they begin with at their ends."""
    scripts = [*(ROOT / "validation").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    callable_ = {path for path in scripts if "with sentences():" in path.read_text()}
    tried = {ROOT / f"{script}.py" for script, *_ in BAD} | {
        ROOT / "validation" / "gpu" / f"{name}.py" for name in NEED_GPU
    }
    assert callable_ <= tried


@pytest.fixture
def run() -> Callable[..., Any]:
    """How benchmarks run the commands that they time."""
    return cast(Callable[..., Any], runpy.run_path(str(ROOT / "benchmarks" / "ran.py"))["run"])


def test_a_command_that_fails_under_a_benchmark_is_quoted(run: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"` ended with code 3: no such model$"):
        run([sys.executable, "-c", "print('loading'); print('no such model'); raise SystemExit(3)"])


def test_the_memory_of_a_command_is_not_that_of_one_before_it() -> None:
    """That of what it starts is: the larger of the two here holds 300 MB in a process below it.

    Linux counts what a process held before it became another program, so a small process asks.
    """
    large = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'bytearray(300_000_000).count(1)'])"
    asks = (
        "import runpy, sys; run = runpy.run_path(sys.argv[1])['run']\n"
        "for code in sys.argv[2:]: print(run([sys.executable, '-c', code]).peak_bytes)"
    )
    command = [sys.executable, "-c", asks, ROOT / "benchmarks" / "ran.py", large, ""]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    first, second = map(int, printed.split())
    assert second < 300_000_000 < first
