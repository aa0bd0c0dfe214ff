"""Lines that frameworks log, each with the step time that follows from it by hand."""

from __future__ import annotations

import pytest

from presim.studies.calibrate.log_lines import StepWork, times_in

WORK = StepWork(tokens=524_288.0, samples=128.0, gpus=64)

LINES = [
    (
        " [2024-05-01 10:00:00] iteration 10/ 100 | consumed samples: 5120 | elapsed time per iteration (ms): 1250.3 |"
        " throughput per GPU (TFLOP/s/GPU): 400.1 | learning rate: 1.0E-05 | global batch size:   512 |",
        1.2503,
    ),
    ("Step Time : 12.34s GPU utilization: 400.1MODEL_TFLOP/s/GPU", 12.34),
    (
        "[rank0]:[titan] 2025-01-01 00:00:00,000 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.2  memory: "
        "40.10GiB(50.64%)  tps: 8,192  tflops: 417.30  mfu: 42.19%",
        524_288 / 64 / 8192,
    ),
    (
        "[2024-05-01 10:00:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step=10/global_step=10, "
        "RunningAvgSamplesPerSec=95.3, CurrSamplesPerSec=64.0, MemAllocated=4.2GB, MaxMemAllocated=30.1GB",
        2.0,
    ),
    (
        "{'train_runtime': 12.3, 'train_samples_per_second': 130.1, 'train_steps_per_second': 1.25, 'train_loss': 2.1}",
        0.8,
    ),
    ("Epoch 0:  10%|█         | 10/100 [00:12<01:48,  0.83it/s, v_num=0, loss=2.300]", 1 / 0.83),
    (" 10%|█         | 10/100 [00:12<01:48,  1.20s/it]", 1.2),
    ("step_time: 250 ms", 0.25),
    ("iter time: 0.25", 0.25),
]


@pytest.mark.parametrize(("line", "seconds"), LINES)
def test_a_line_gives_the_time_of_its_step(line: str, seconds: float) -> None:
    times_s, needed = times_in(f"loss 2.3\n{line}\n", WORK)
    assert (times_s, needed) == ([pytest.approx(seconds)], "")


def test_a_rate_without_the_amount_names_it() -> None:
    """Neither a guess nor nothing: the sentence says what the job does not know."""
    assert times_in("tps: 8,192", StepWork(samples=1.0)) == ([], "tokens of a step")
    assert times_in("CurrSamplesPerSec=64.0", StepWork(tokens=1.0)) == ([], "samples of a step")


def test_text_without_times_gives_none() -> None:
    """Other figures of a log are no step times."""
    assert times_in("loss: 2.3 lr: 1e-4 memory: 40GiB https://x/it/s 3it/s", WORK) == ([], "")
