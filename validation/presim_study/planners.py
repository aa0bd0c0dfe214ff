"""Which recipe builds which case: one planner a family of frameworks, found by the words of the case."""

from __future__ import annotations

import re

from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family import mlperf
from presim_study.megatron_family.planner import plan_megatron
from presim_study.plan import Plan, Planner
from presim_study.plans.borrowed import plan_automodel, plan_torchtune
from presim_study.plans.deepspeed import plan_deepspeed
from presim_study.plans.litgpt import plan_litgpt
from presim_study.plans.mosaic import plan_mosaic
from presim_study.plans.single_gpu import plan_single_gpu
from presim_study.plans.torchtitan import plan_torchtitan

_PLANNERS: tuple[tuple[tuple[str, ...], Planner], ...] = (
    (("torchtitan",), plan_torchtitan),
    (("llm-foundry", "composer"), plan_mosaic),
    (("automodel",), plan_automodel),
    (("torchtune",), plan_torchtune),
    (("litgpt", "lit-gpt"), plan_litgpt),
    (("megatron",), plan_megatron),  # Megatron-DeepSpeed, too
    (("deepspeed",), plan_deepspeed),
    (("nemo", "nvidia release", "ngc", "nvidia pytorch"), plan_megatron),
    (("hf transformers", "hugging face"), plan_single_gpu),
)


_REINFORCING = ("nemo rl", "nemo-rl", "nemo aligner", "verl", "openrlhf", "trlx")


_AMD = ("amd ", "instinct", "rocm", "mi100", "mi210", "mi250", "mi300", "mi325", "mi350", "mi355")


_COUNTED = ("tp", "pp", "vp", "cp", "ep", "etp", "dp", "n_gpus", "gpus_per_node", "micro_batch", "seq_len", "n_layers")


_OPTIONAL = ("vp", "ep", "etp")  # where 0 is a way to write that there is none


_OTHER_OPTIMIZERS = re.compile(
    r"sgd|adafactor|lion\b|lamb\b|shampoo|sophia|8[- ]?bit|galore|adagrad|rmsprop", re.IGNORECASE
)


def _check_optimizer(case: Case) -> None:
    if _OTHER_OPTIMIZERS.search(case.text("optimizer")):
        raise CannotBuildError(f"the recipes' optimizers are Adam and Muon, and the case's is {case.text('optimizer')}")


def _samples(case: Case) -> str:
    """A step's samples, of what may be its tokens: ``4M tokens``."""
    said = case.text("global_batch")
    tokens, each = case.number("global_batch"), case.number("seq_len")
    if "tokens" not in said or not tokens or not each:
        return said
    if tokens % each:
        raise CannotBuildError(f"global_batch = {said!r} is no multiple of seq_len = {case.text('seq_len')}")
    return str(int(tokens / each))


def _check_counts(case: Case) -> None:
    for column in _COUNTED:
        value = case.number(column)
        if value is not None and value < 1 and not (value == 0 and column in _OPTIONAL):
            raise CannotBuildError(f"{column} = {case.text(column)!r} must be at least 1")


def completed(case: Case) -> Case:
    """The case with its number of GPUs and its micro-batch, where its other cells leave one only.

    GPUs are data x tensor x pipeline x context parallelism, if the first is given; a step's samples are micro-batch x
    accumulation x data parallelism.

    Raises:
        CannotBuildError: there is none of something that a run has at least one of, or its optimizer is another.
    """
    _check_counts(case)
    _check_optimizer(case)
    unused = {column: "" for column in _OPTIONAL if case.number(column) == 0}
    case = Case({**case.row, "global_batch": _samples(case), **unused})
    row, split = dict(case.row), case.count("tp", 1) * case.count("pp", 1) * case.count("cp", 1)
    replicas = case.count("dp", 0) or case.count("n_gpus", 0) // split
    if not case.text("n_gpus") and case.text("dp"):
        row["n_gpus"] = str(replicas * split)
    samples, steps = case.count("global_batch", 0), case.count("grad_accum", 0) * replicas
    if not case.text("micro_batch") and samples and steps and samples % steps == 0 and not mlperf.is_one(case):
        row["micro_batch"] = str(samples // steps)
    return Case(row)


def plan(case: Case) -> Plan:
    """The plan of a case.

    Raises:
        CannotBuildError: no recipe fits, or the case lacks what its recipe needs.
    """
    case = completed(case)
    return planner_of(case)(case)


def planner_of(case: Case) -> Planner:
    """What plans the cases of this one's family.

    Raises:
        CannotBuildError: nothing does.
    """
    framework = case.text("framework").lower()
    if any(word in framework for word in _REINFORCING):
        raise CannotBuildError("a step of reinforcement learning generates and scores, too, which no recipe does")
    if any(word in f"{case.text('gpu').lower()} {framework}" for word in _AMD):
        raise CannotBuildError(f"{case.text('gpu')} is AMD's: what runs on it is ROCm's, which is not emulated")
    if mlperf.is_one(case):  # whose frameworks are what submitters call their containers
        return plan_megatron
    for words, planner in _PLANNERS:
        if any(word in framework for word in words):
            if planner is not plan_megatron and "muon" in case.text("optimizer").lower():
                raise CannotBuildError(f"the recipe's optimizer is Adam, and the case's is {case.text('optimizer')}")
            return planner
    raise CannotBuildError(f"no recipe for the framework {case.text('framework')!r}")
