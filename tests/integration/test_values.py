"""Values that scripts read from the emulated device; traces are the same with and without values."""

from __future__ import annotations

import importlib.util
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from presim.capture.device_values.drawn_values import lengths
from presim.errors import CaptureError
from presim.evaluation.options import RunOptions
from presim.result import Result
from presim.trace.schema import Kind, Trace
from support.captured import SCRIPTS, evaluated, run

pytestmark = pytest.mark.torch_cuda


def capture(script: str, *args: str, values: tuple[str, ...] = (), **more: Any) -> Trace:
    """A test script, run to its end with non-default policies."""
    options = RunOptions(gpu="h100-sxm", values=values, **more)
    return evaluated(SCRIPTS / script, *args, options=options).priced.trace


def entries(trace: Trace) -> list[tuple[Any, ...]]:
    """The device work in order, without host times and addresses.

    Frees that follow each other are sorted: autocast drops its cache in the order of addresses on the heap. Which
    entry stands for the launch of a graph goes by the host's clock (`Kind`), and is left out, too. Blocks and segments
    are numbered as they come, whether or not one lies where an earlier one lay: which cached segments go first when
    the cache is emptied is also a matter of addresses on the heap.
    """
    lives: dict[tuple[bool, int], int] = {}
    count = itertools.count()
    columns = {name: column.tolist() for name, column in trace.columns.items()}
    found = []
    for i, kind in enumerate(columns["kind"]):
        signature, operator = columns["signature"][i], columns["operator"][i]
        place = columns["object"][i]
        if Kind.ALLOC <= kind <= Kind.RETAG:
            life = (kind in (Kind.SEGMENT_ALLOC, Kind.SEGMENT_FREE), place)
            if kind in (Kind.ALLOC, Kind.SEGMENT_ALLOC):
                lives[life] = next(count)
            place = lives[life]
        found.append(
            (
                Kind(kind).name,
                columns["phase"][i],
                columns["stream"][i],
                trace.signatures[signature] if signature >= 0 else None,
                trace.operators[operator] if operator >= 0 else "",
                place,
                columns["value"][i] if kind > Kind.STREAM_WAIT else 0,
            )
        )
    runs = itertools.groupby(found, key=lambda entry: entry[0] == Kind.FREE.name)
    return [entry for frees, run_ in runs for entry in (sorted(run_, key=str) if frees else run_)]


def test_small_tensors_are_computed_for_real() -> None:
    """The script checks factories, indexing, in place, out=, foreach, random, backward, graph replay."""
    job = run("small_values.py")
    assert (job.trace.manifest.exit, job.trace.manifest.error) == ("ok", "")


def test_small_layers_of_libraries_are_computed_for_real() -> None:
    """Batch norm with its running statistics, convolutions, products of another type, forward and backward."""
    job = run("small_layers.py")
    assert (job.trace.manifest.exit, job.trace.manifest.error) == ("ok", "")


def result_of(script: str, *args: str, values: tuple[str, ...] = (), **options: Any) -> Result:
    """The result of a script that checks itself and ended normally."""
    wanted = RunOptions(gpu="h100-sxm", values=values, steps=0, **options)
    result = evaluated(SCRIPTS / script, *args, options=wanted).result
    assert (result.exit, result.error) == ("ok", "")
    return result


def test_sizes_that_the_device_counts_follow_from_values_or_policies_and_empty_selections_are_named() -> None:
    """Numbers are not zero, so all are selected; a mask selects nothing, which a note says with its line."""
    notes = result_of("counted_sizes.py").notes
    (note,) = (note for note in notes if note.startswith("Masks"))
    assert note.startswith("Masks whose values are not computed select nothing (counted_sizes.py:21): ")


def test_scaling_clipping_overflow_checks_and_early_stopping_follow_their_policies() -> None:
    """The script stops after the third loss; the result lists each read with its line and policy.

    Between its steps it evaluates, which is no part of their batch.
    """
    result = result_of("training_values.py", values=("gradient_norm=4", "loss=3,2.75,2.5"))
    assert result.step_time_s is not None
    assert result.throughput.samples_per_s is not None
    assert result.throughput.samples_per_s * result.step_time_s == pytest.approx(8)
    answers = Counter[str]()
    for read in result.read_backs:
        answers[read.answer] += read.times
    assert answers["loss"] == answers["gradient norm"] == answers["number"] == 3
    assert result.policies["gradient_norm"] == "4"
    line = next(read.line for read in result.read_backs if read.answer == "loss").rpartition("/")[2]
    source = (SCRIPTS / "training_values.py").read_text().splitlines()
    assert source[int(line.rpartition(":")[2]) - 1].strip() == "losses.append(loss.item())"
    assert any(f"loss 3x ({line})" in note for note in result.notes)


def test_a_loss_of_many_operators_is_a_loss() -> None:
    """By its autograd function's name, summed or not, in a CUDA graph; and PyTorch's for split vocabularies."""
    result = result_of("split_loss.py", world_size=2, ranks="0")
    answers = Counter(read.answer for read in result.read_backs)
    assert answers["loss"] == 4
    assert answers["number"] == 0


def test_every_loss_of_pytorch_follows_the_policy_for_losses() -> None:
    """The script checks itself. Losses are one operator, several, or several Python functions."""
    answers = {read.answer for read in result_of("losses.py", values=("loss=7",)).read_backs}
    assert answers >= {"loss", "computed"}


@pytest.mark.long
def test_skewed_routing_takes_longer_than_balanced() -> None:
    """Rank 0 has the popular experts, so it gets more tokens and larger products."""
    balanced = result_of("experts.py", world_size=8, host_time=False)
    skewed = result_of("experts.py", world_size=8, host_time=False, values=("routing=zipf:1.2",))
    assert balanced.step_time_s is not None
    assert skewed.step_time_s is not None
    assert skewed.step_time_s > 1.5 * balanced.step_time_s
    assert {read.answer for read in balanced.read_backs} == {"routing"}
    # 4096 tokens go to 4 experts each with 1024 numbers in bf16, after the counts of 32 experts
    tokens = 4096 * 4 * 1024 * 2
    assert sum(exchange.bytes for exchange in balanced.collectives) == tokens + 32 * 8
    # and so does the exchange: rank 0 gets more than it sends, and all wait for it
    (even,), (uneven,) = (result.collectives for result in (balanced, skewed))
    assert uneven.bytes > 1.5 * tokens
    assert uneven.seconds > 1.5 * even.seconds


@pytest.mark.parametrize(
    ("routing", "shares"),
    [
        ("uniform", (0.25, 0.25, 0.25, 0.25)),
        ("zipf:1", (0.48, 0.24, 0.16, 0.12)),  # 1, 1/2, 1/3, 1/4 of their sum
        ("file:LOADS", (0.6, 0.0, 0.1, 0.3)),
    ],
)
def test_routing_follows_the_loads_of_its_policy(
    routing: str, shares: tuple[float, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """8192 tokens, each to one of four experts; three standard deviations are 0.015."""
    (tmp_path / "loads").write_text("6 0 1 3")
    result_of("routed.py", values=(f"routing={routing.replace('LOADS', str(tmp_path / 'loads'))}",))
    (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("counts"))
    counts = [int(word) for word in line.split()[1:]]
    assert sum(counts) == 8192
    assert [count / 8192 for count in counts] == pytest.approx(shares, abs=0.016)
    assert counts != [2048] * 4
    assert [count == 0 for count in counts] == [share == 0 for share in shares]


def test_loads_for_another_number_of_experts_are_reported(tmp_path: Path) -> None:
    (tmp_path / "loads").write_text("1 2 3")
    result = result_of("routed.py", values=(f"routing=file:{tmp_path / 'loads'}",))
    expected = "Routing over 4 experts is balanced: the file of --values routing has 3 loads."
    assert expected in result.notes


@pytest.mark.parametrize(
    ("way", "values", "tokens"),
    [("greedy", ("eos=7", "eos_after=9"), 10), pytest.param("sampled", (), 32, marks=pytest.mark.long)],
)
def test_generation_stops_at_the_end_token_or_at_its_length(way: str, values: tuple[str, ...], tokens: int) -> None:
    result_of("generates.py", way, str(tokens), values=values)


def test_sequences_end_after_lengths_of_their_own(capfd: pytest.CaptureFixture[str]) -> None:
    """The lengths of a seed, one sequence after the other, in all batches."""
    capture("drawn_values.py", "lengths", values=("eos=7", "eos_after=uniform:3:20:5"))
    (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("lengths"))
    assert [int(word) for word in line.split()[1:]] == lengths("uniform:3:20:5")[:5]


def test_a_share_of_a_draft_s_tokens_is_accepted(capfd: pytest.CaptureFixture[str]) -> None:
    """Binomial: 400 tokens at 0.7 have a standard deviation of 0.023; without the policy all are accepted."""
    capture("drawn_values.py", "draft", values=("acceptance=0.7:3",))
    (line,) = (line for line in capfd.readouterr().err.splitlines() if line.startswith("agreed"))
    assert float(line.split()[1]) == pytest.approx(0.7, abs=0.07)


def test_a_loop_on_a_value_that_never_changes_is_stopped_with_its_line() -> None:
    with pytest.raises(
        CaptureError,
        match=r"^the script loops at .*/waits_for_ever\.py:6 on a device value that does not change: it read "
        r"0\.5 \(item, number\) \d+ times in \d+ s and did nothing else\. ",
    ):
        capture("waits_for_ever.py", values=("watchdog=1",))


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("without_values.py", {}),
        pytest.param("compiled.py", {}, marks=pytest.mark.long),
        pytest.param("sharded.py", {"world_size": 4, "ranks": "0"}, marks=pytest.mark.long),
    ],
)
def test_the_device_work_is_the_same_with_and_without_values(script: str, options: dict[str, Any]) -> None:
    """Kernels, copies, collectives, streams, synchronisations and memory, in the same order."""
    if script == "compiled.py":
        run(script)  # what torch.compile keeps is there from here on
    computed, zeros = capture(script, **options), capture(script, values=("off",), **options)
    assert len(computed) > 100
    assert entries(computed) == entries(zeros)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="the script has Triton kernels")
def test_a_triton_kernel_in_the_table_is_emulated_and_a_compiled_loss_is_one() -> None:
    """The script checks the kernel's counts; the compiled loss is recognised by its kernel's name."""
    result = result_of("triton_values.py", values=("loss=2.25",))
    answers = {read.answer for read in result.read_backs}
    assert answers == {"computed", "zero", "number", "loss"}


def test_releasing_memory_with_values_is_not_host_time() -> None:
    """24 MiB each time, which may take the operating system milliseconds."""
    trace = capture("counted.py")
    widened = np.flatnonzero(trace.mask(Kind.ALLOC) & (trace.columns["value"].astype(np.int64) > 20 << 20))
    assert len(widened) == 24
    assert np.median(trace.columns["host_ns"][widened + 1].astype(np.int64)) < 100_000
