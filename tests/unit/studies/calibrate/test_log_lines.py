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
    ("[2022-01-01 00:00:00,000] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=64.0, MemAllocated=0.26GB", 2.0),
    (
        "Epoch 0: :   3%|▎         | 900/30150 [0:10:42<5:37:46, v_num=0-56, global_step=9e+2, train_step_timing in "
        "s=0.615, val_loss=7.040]",
        0.615,
    ),
    ("\x1b[32mINFO - \x1b[31mstep:  4  \x1b[32mloss:  7.6  \x1b[33mtps: 8,192  \x1b[39m", 1.0),
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


def test_lines_of_several_ranks_about_one_step_count_once() -> None:
    """Else every second line, which is held out, would be the step that was used."""
    lines = [
        f"[rank{rank}]:[titan] root - INFO - step: {step:2d}  loss: 7.6  tps: {rate:,}  tflops: 314.7"
        for step, rate in ((1, 1024), (2, 8192), (3, 4096))
        for rank in range(8)
    ]
    assert times_in("\n".join(lines), WORK) == ([8.0, 1.0, 2.0], "")


def test_a_bar_gives_steps_between_its_lines_not_the_average_since_its_first() -> None:
    """Lightning's rate holds the warm-up: 20 s for the first step, then 2 s each. Every line stands twice."""
    lines = []
    for step in range(1, 101):
        elapsed = 20 + 2 * (step - 1)
        clock, left = f"{elapsed // 60:02d}:{elapsed % 60:02d}", f"{4:02d}:00"
        lines += [f"Epoch 0:  10%|█ | {step}/100 [{clock}<{left},  {elapsed / step:.2f}s/it, v_num=3, loss=2.3]"] * 2
    times_s, _ = times_in(
        "Loading checkpoint shards: 100%|██████| 4/4 [00:36<00:00,  9.00s/it]\n" + "\r".join(lines), WORK
    )
    assert times_s == [pytest.approx(2.0, rel=0.03)] * len(times_s)
    few, _ = times_in("\r".join(lines[:10]), WORK)
    assert few == [pytest.approx(2.0, rel=0.03)] * 4


@pytest.mark.parametrize("label", ["Loading checkpoint shards: ", "Map: ", "Validation DataLoader 0: "])
def test_bars_of_other_work_are_no_steps(label: str) -> None:
    assert times_in(f"{label}100%|████| 40/40 [05:00<00:00,  7.50s/it]", WORK) == ([], "")


def test_the_longest_bar_counts() -> None:
    """Trainer's evaluation has a bar without a name, too."""
    training = " 10%|█ | 10/100 [00:20<03:00, 2.00s/it]\r 40%|████ | 40/100 [01:50<03:40, 3.10s/it]"
    evaluation = " 50%|█████ | 5/10 [00:01<00:01, 4.00it/s]"
    assert times_in(f"{training}\n{evaluation}\n", WORK) == ([3.0], "")
