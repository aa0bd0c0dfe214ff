"""Options that act only beside others are refused alone, and only then."""

from __future__ import annotations

import importlib

import click
import pytest

from presim.cli.option_needs import NEEDS, check_needs
from presim.errors import InputError

_SERVE = "serve m --gpu h100-sxm"
CASES = [  # refused, the same with what it acts beside
    (f"{_SERVE} --burst 4", "--rate 2 --arrivals burst"),
    (f"{_SERVE} --burstiness 0.5", "--rate 2 --arrivals gamma"),
    (f"{_SERVE} --rate 2 --ramp-to 9", "--arrivals ramp"),
    (f"{_SERVE} --arrivals constant", "--rate 2"),
    (f"{_SERVE} --groups 4", "--shared-prefix 100"),
    (f"{_SERVE} --think 4", "--turns 2"),
    (f"{_SERVE} --grammar-ms 4", "--structured 0.5"),
    (f"{_SERVE} --trace-unit ms", "--trace t.jsonl"),
    (f"{_SERVE} --trace-block-tokens 16", "--trace t.jsonl"),
    (f"{_SERVE} --draft-tokens 3", "--speculative ngram"),
    (f"{_SERVE} --acceptance 0.5", "--speculative mtp"),
    (f"{_SERVE} --speculative ngram --draft-model d", "--speculative draft"),
    (f"{_SERVE} --lora-rank 8", "--max-loras 2"),
    (f"{_SERVE} --kv-host-bandwidth 8", "--kv-host 2"),
    (f"{_SERVE} --kv-disk-bandwidth 8", "--kv-disk 2"),
    (f"{_SERVE} --max-prefill-tokens 8", "--kernels sglang"),
    (f"{_SERVE} --scheduler-recv-interval 8", "--scheduler sglang"),
    (f"{_SERVE} --kernels sglang --prefill-schedule-interval 8", "--scheduler vllm"),
    (f"{_SERVE} --prefill-tp 2", "--prefill-replicas 2"),
    (f"{_SERVE} --prefill-gpu a100-80gb-sxm", "--prefill-replicas 2"),
    (f"{_SERVE} --kv-shared-bandwidth 2", "--kv-shared 2"),
    (f"{_SERVE} --slo-percentile 50", "--slo ttft:5"),
    (f"{_SERVE} --cooldown 5", "--autoscale 1:2"),
    (f"{_SERVE} --start-up 5", "--autoscale 1:2"),
    (f"{_SERVE} --start-up 5", "--mtbf 2"),
    (f"{_SERVE} --on-failure lose", "--mtbf 2"),
    (f"{_SERVE} --speed 5", "--listen 0"),
    ("calibrate serving m --gpu h100-sxm --from bench.json --lora-rank 8", "--max-loras 2"),
    ("calibrate serving m --gpu h100-sxm --from bench.json --prefill-tp 2", "--prefill-replicas 1"),
    ("deploy m --gpu h100-sxm --groups 4", "--shared-prefix 100"),
    ("deploy m --gpu h100-sxm --acceptance 0.9", "--speculative ngram"),
    ("deploy m --gpu h100-sxm --router sglang", "--write DIR"),
    ("run --wider 64 train.py", "--save job"),
    ("simulate job --jitter-draws 3", "--jitter gpus=0.1"),
    ("prefill m --gpu h100-sxm --sp 2 --requests 3", "--trace t.jsonl"),
    ("compose m --recompute-blocks 2", "--recompute full"),
    ("compose m --recompute-blocks 2", "--plan p.toml"),
    ("rl m --gpu h100-sxm --reward-workers 3", "--reward-seconds 1"),
    ("training job --tokens 1e9 --elastic", "--spares 0"),
    ("training job --tokens 1e9 --repair 5", "--spares 1"),
]
BESIDE = [
    f"{_SERVE} --trace t.jsonl --rate 2",
    f"{_SERVE} --workload w.json --input 100",
    f"{_SERVE} --workload w.json --trace t.jsonl",
    f"{_SERVE} --listen 0 --requests 5",
    f"{_SERVE} --replicas 2 --autoscale 1:3",
    "training job --tokens 1e9 --failures rsc-1 --mtbf 5",
    "rl m --gpu h100-sxm --placement separate --sleep-level 1",
    "compose m --no-overlap --dp-style fsdp2",
    "compose m --no-reshard --dp-style zero1",
]


def command_of(verb: str) -> click.Command:
    """The command of a verb, or of a verb below one, as `calibrate serving`."""
    name, *below = verb.split()
    command: click.Command = importlib.import_module(f"presim.cli.{name}").command
    return command.commands[below[0]] if isinstance(command, click.Group) else command


def check(words: str, others: str = "") -> None:
    """``others``: further options, behind those of ``words``; of ``run`` before them, where no script takes them."""
    verb = next(verb for verb in NEEDS if words.startswith(f"{verb} "))
    parts = [words.removeprefix(verb), others]
    options = " ".join(reversed(parts) if verb == "run" else parts).split()
    parent = click.Context(click.Group("presim"), info_name="presim")
    check_needs(command_of(verb).make_context(verb, options, parent=parent))


@pytest.mark.parametrize(("words", "others"), CASES)
def test_an_option_without_what_it_acts_beside_is_refused(words: str, others: str) -> None:
    with pytest.raises(InputError, match=r"has no effect (without|beside) .*; (give both|leave out one)"):
        check(words)
    check(words, others)


@pytest.mark.parametrize("words", BESIDE)
def test_an_option_beside_what_takes_its_place_is_refused(words: str) -> None:
    with pytest.raises(InputError, match=r"has no effect beside .*; leave out one of them"):
        check(words)


def test_defaults_are_refused_nowhere() -> None:
    """Only what a user gives is looked at; each rule names options of its verb."""
    for words in (_SERVE, "deploy m --gpu h100-sxm", "training job --tokens 1e9"):
        check(words)
    for verb, needs in NEEDS.items():
        declared = command_of(verb).params
        flags = {flag for option in declared for flag in (*option.opts, *option.secondary_opts)}
        assert {flag for need in needs for flag in need.flags.split()} <= flags
