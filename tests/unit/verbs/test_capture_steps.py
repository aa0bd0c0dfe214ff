"""Captured steps are captured once, kept, and read back as the phases of each step; what does not fit is refused."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from presim.errors import InputError
from presim.hardware import Cluster
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.model_lookup import config_of, find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.times import PricedEngine, build
from presim.trace import job_store
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.schema import Manifest
from presim.trace.signatures import Attention, Copy, Gemm
from presim.verbs import capture_steps
from presim.verbs.step_times import read_captured

PLAN = ServingPlan(max_num_seqs=4, max_num_batched_tokens=64, cuda_graphs=False, max_model_len=512)
VOCABULARY, HIDDEN = 128_256, 4096
SCHEDULE, INPUTS, LAUNCH, FINISH, MARK = 300_000, 100_000, 30_000, 200_000, 20_000  # host time, ns


def engine(plan: ServingPlan = PLAN) -> PricedEngine:
    return build(find("llama3-8b"), plan, choose_cluster(gpu="h100-sxm", world_size=plan.gpus))


def write_set(folder: Path, cluster: Cluster, progress: Any = None) -> None:
    """What vLLM would leave for `asked.json`: marks alone, then each batch twice, one with a disturbed host."""
    asked = json.loads((folder / "asked.json").read_text())
    trace = TraceBuilder(manifest())
    rows: list[dict[str, Any]] = []
    for _ in range(8):
        trace.step(host_ns=MARK)
        rows.append({"part": "nothing", "chunks": [], "batch": -1})
    for number, batch in enumerate(asked["batches"]):
        chunks = [[1, context, 1] for context in batch["decodes"]] + [[tokens, 0, 1] for tokens in batch["prefills"]]
        for disturbance in (0, 5, 0):
            add_step(trace, chunks, disturbance)
            rows += [{"part": part, "chunks": [], "batch": -1} for part in ("schedule", "run")]
            rows.append({"part": "finish", "chunks": chunks, "batch": number})
    job_store.save([trace.trace()], folder / "job")
    (folder / "steps.json").write_text(json.dumps({"blocks": 100, "steps": rows}))


def manifest() -> Manifest:
    return msgspec.structs.replace(default_manifest(), reference_host=True, versions={"vllm": "0.33.0"})


def add_step(trace: TraceBuilder, chunks: list[list[int]], disturbance: int) -> None:
    tokens, rows = sum(count for count, _, _ in chunks), len(chunks)
    trace.step(host_ns=(SCHEDULE + MARK) * (1 + disturbance))
    trace.work(Copy("h2d", 8 * tokens, True), host_ns=INPUTS * (1 + disturbance))
    trace.work(Gemm(tokens, 6144, HIDDEN, 1, "bfloat16", layout="NT"), scope="model.layers.0", host_ns=0)
    longest = max(count + before for count, before, _ in chunks)
    trace.work(
        Attention(
            "forward",
            rows,
            32,
            8,
            max(tokens // rows, 1),
            longest,
            128,
            128,
            True,
            "bfloat16",
            "flash3",
            paged=True,
        ),
        scope="model.layers.0",
        host_ns=LAUNCH,
    )
    trace.work(Gemm(rows, VOCABULARY, HIDDEN, 1, "bfloat16", layout="NT"), scope="logits_processor", host_ns=LAUNCH)
    trace.work(Copy("d2h", 8 * rows, True), host_ns=0)
    trace.event_sync(trace.record(stream=0))
    trace.step(host_ns=MARK)
    trace.step(host_ns=(FINISH + MARK) * (1 + disturbance))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """An empty cache, vLLM 0.33.0, and a capture that lists the folders it was asked for."""
    asked: list[Path] = []

    def capture(folder: Path, cluster: Cluster, progress: Any) -> None:
        asked.append(folder)
        write_set(folder, cluster)

    monkeypatch.setattr(capture_steps.platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.33.0")
    monkeypatch.setattr(capture_steps, "capture_steps", capture)
    return asked


def test_steps_are_captured_once_for_all_calls_with_the_same_engine(kept: list[Path], tmp_path: Path) -> None:
    config, _ = config_of("llama3-8b")
    first = capture_steps.engine_with_steps(engine(), config, "captured")
    second = capture_steps.engine_with_steps(engine(), config, "captured")
    assert len(kept) == 1
    assert np.array_equal(first.times.token_ns, second.times.token_ns)
    capture_steps.engine_with_steps(engine(dataclasses.replace(PLAN, max_num_seqs=2)), config, "captured")
    assert len(kept) == 2
    found = sorted((tmp_path / "presim" / "steps").iterdir())
    assert len(found) == 2  # no half of a set is left


def test_a_kept_set_is_used_by_its_folder_and_refused_for_another_engine(kept: list[Path], tmp_path: Path) -> None:
    config, _ = config_of("llama3-8b")
    capture_steps.engine_with_steps(engine(), config, "captured")
    (folder,) = (tmp_path / "presim" / "steps").iterdir()
    made = capture_steps.engine_with_steps(engine(), config, str(folder))
    assert made.steps is not None
    assert made.steps["source"] == "captured from vLLM 0.33.0's model runner on the emulated h100-sxm"
    assert made.overheads.host_origin == made.steps["source"]
    assert (made.limits.num_gpu_blocks, made.memory.blocks) == (100, 100)  # as vLLM sized its cache
    other = engine(dataclasses.replace(PLAN, max_num_batched_tokens=128))
    with pytest.raises(InputError) as error:
        capture_steps.engine_with_steps(other, config, str(folder))
    assert str(error.value) == (
        f"the steps of {folder} were captured with max_num_batched_tokens = 64, not 128; capture them with --steps "
        "captured"
    )
    with pytest.raises(
        InputError,
        match=r"^cannot read .*asked\.json: No such file or directory; name `captured`, `composed` or a folder",
    ):
        capture_steps.engine_with_steps(engine(), config, str(tmp_path / "nothing"))


def test_a_damaged_set_is_refused(kept: list[Path], tmp_path: Path) -> None:
    config, _ = config_of("llama3-8b")
    capture_steps.engine_with_steps(engine(), config, "captured")
    (folder,) = (tmp_path / "presim" / "steps").iterdir()
    whole = json.loads((folder / "steps.json").read_text())
    more = {**whole, "steps": [*whole["steps"], whole["steps"][0]]}
    for content, why in (
        ("{", r"holds no captured steps \(Input data was truncated\); name a folder of --steps captured"),
        ('{"blocks": 1, "steps": [{"part": 3}]}', r"holds no captured steps \(Expected `str`, got `int` - at"),
        (json.dumps(more), r"^the captured job has \d+ steps, but steps.json has \d+; capture them again$"),
    ):
        (folder / "steps.json").write_text(content)
        with pytest.raises(InputError, match=why):
            capture_steps.engine_with_steps(engine(), config, str(folder))


def test_without_vllm_the_sentence_says_what_installs_it() -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.metadata, "version", missing)
        with pytest.raises(InputError) as error:
            capture_steps.engine_with_steps(engine(), config_of("llama3-8b")[0], "captured")
    assert str(error.value) == (
        "steps are captured from vLLM, which is not installed for this Python: `make vllm` installs it, or leave "
        "--steps at composed"
    )


def test_a_step_is_cut_into_what_the_host_and_the_device_do(tmp_path: Path) -> None:
    """Host time is the least of a batch's repeats, without what a mark takes; a disturbed repeat does not count."""
    one = engine()
    (tmp_path / "asked.json").write_text(json.dumps(capture_steps.capture_request(one, config_of("llama3-8b")[0])))
    write_set(tmp_path, one.cluster)
    found = read_captured(tmp_path, one.cluster)
    decode = next(sample for sample in found.samples if len(sample.decodes) == 4)
    prompt = max(found.samples, key=lambda sample: sample.tokens)
    assert decode.decodes == (257,) * 4
    assert prompt.prefills == ((64, 64),)
    ratio = decode.prepare_ns / (
        SCHEDULE + INPUTS
    )  # of the cluster's host to the reference host, and calls to the libraries
    assert 1 < ratio < 3
    assert decode.finish_ns == pytest.approx(FINISH * ratio, rel=0.1)
    assert 0 < decode.attention_ns < decode.device_ns
    assert 0 < decode.head_ns < decode.device_ns
    assert decode.launch_ns > 2 * LAUNCH
    assert sum(found.origins.values()) == pytest.approx(1)
    assert 0 < found.uncertainty < 1
