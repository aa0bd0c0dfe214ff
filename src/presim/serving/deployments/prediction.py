"""Predict what a deployment does under a workload: figures with intervals, and what is to be said of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from presim.composition.models.decoder_layers import Compressed, LinearAttention, Mamba, ShortConvolution
from presim.composition.models.description import Model
from presim.cost.estimators import notes
from presim.errors import InputError
from presim.hardware import constants as calibration
from presim.serving.answer import fleet as fleets
from presim.serving.answer import metrics, refused
from presim.serving.answer.intervals import intervals
from presim.serving.answer.metrics import Slo
from presim.serving.defaults import VERSIONS
from presim.serving.deployments.deployment import Deployment
from presim.serving.deployments.rates import STEADY, largest_rate, sustainable_rate
from presim.serving.engine_versions import has_other_core
from presim.serving.engines.engine import Life
from presim.serving.engines.simulate_fleet import Served, simulate
from presim.serving.kv.startup import asked_length
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps import encoder_profile
from presim.serving.steps.engine_memory import counts_graphs
from presim.serving.steps.times import PricedEngine
from presim.serving.workloads.workload import Workload, summary
from presim.units import plain

_Z80 = 1.2816  # standard deviations of a normal distribution's 80 % interval
_HOST_DOUBT = 0.5  # of host overhead, where nobody calibrated it
SHOWN = ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "output_throughput", "request_throughput")
_STATES = (
    "Layers with states, or with compressed attention, are priced by their products and what they move, uncalibrated."
)
_TEXT_ALONE = (
    "Prompts are of text, or of images and sound that are encoded already: the time of the encoder is not in these "
    "figures."
)
_NO_ENCODER = "With --language-model-only there is no encoder."
_ENCODERS = (
    "vLLM runs the encoder of images or sound with its largest input before it sizes the cache, which takes up to some "
    f"GiB of it; that is not in the memory above. {_NO_ENCODER}"
)
_ENCODER_PROFILE = (
    "The activations are those of vLLM's profiling run with its largest image of 16,384 tokens, whatever "
    f"--limit-mm-per-prompt says. {_NO_ENCODER}"
)
_UNCALIBRATED = (Mamba, LinearAttention, ShortConvolution, Compressed)
_WINDOW = "{} keeps all tokens of layers with a sliding window, as its pools for them are not modelled."
_CAPTURED_EXPERTS = "Tokens of captured steps are assumed to choose their experts evenly."
_INT8_CACHE = (
    "Attention over an INT8 KV cache is priced as FlashAttention's over an FP8 one: vLLM's kernel in Triton is not "
    "calibrated."
)
_GRAPHS = (
    "vLLM takes an estimate of its CUDA graphs off the cache, extrapolated from two of them: 0.2 to 10 GiB in public "
    "logs of models with experts or states, and here 0.6 GiB at most, or 18.5 MiB a graph with states. Where the cache "
    "limits, give --num-gpu-blocks of a log."
)
_CONTEXT = "What ranks of --dcp gather of the cache for the later chunks of a prompt is not priced."
_FOUND = "Prefixes are found even where a window or a state at their end was evicted before the rest."
_TRANSFERS = "Keys and values cross the described network as if every prefill engine sent to a decode engine at once."
_EXPERTS = (
    "The load of experts is assumed to follow a power law with exponent 1.01; the fullest of N ranks with whole "
    "experts has N ** 0.2 times the mean load."
)


def encoder_limits(model: Model, kernels: str) -> list[str]:
    """Sentences about a model's encoder of images or sound: its time, and its memory at the start of vLLM."""
    if not any(weight.part == "encoder" for weight in model.outside):
        return []
    memory = _ENCODER_PROFILE if encoder_profile.has_profile(model) else _ENCODERS
    return [_TEXT_ALONE, *([memory] if kernels == "vllm" else [])]


def _has_uncertain_graphs(model: Model, plan: ServingPlan) -> bool:
    """Whether vLLM counts CUDA graphs of layers for which its estimates differ by much."""
    counts = plan.kernels == "vllm" and plan.cuda_graphs and plan.num_gpu_blocks is None
    return counts and counts_graphs(model, plan) and bool(model.experts or model.recurrent)


def shortening_note(engine: PricedEngine) -> str | None:
    """A sentence for an engine whose requests may have fewer tokens than its model: its cache holds no more."""
    length = asked_length(engine.model, engine.plan)
    if engine.limits.max_model_len >= length:
        return None
    return f"A request may have {engine.limits.max_model_len:,} of {length:,} tokens: the KV cache holds no more."


def _about_version(engine: PricedEngine) -> str | None:
    """A sentence for an engine that is older than any whose core is simulated."""
    version = engine.plan.engine_version
    if not has_other_core(engine.plan.kernels, version):
        return None
    return (
        f"Version {version} is older than the core that is simulated, {VERSIONS[engine.plan.kernels]}'s: published "
        "runs of such versions take up to 1.5 times as long, and the intervals are wider for it."
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """Simulated performance of a deployment."""

    deployment: Deployment
    workload: Workload
    served: Served
    slo: Slo
    figures: dict[str, Any]  # keys as in vllm bench serve
    intervals: dict[str, tuple[float, float]]  # 80 %
    inside: dict[str, Any]
    sustainable: float | None  # requests/s; None if arrivals are not timed
    knee: float | None  # largest rate that meets the SLO
    fleet: dict[str, Any] | None = None  # if engines start, stop or fail

    @property
    def gpus(self) -> float:
        """Mean number of GPUs over the run."""
        return float(self.fleet["mean_gpus"]) if self.fleet else self.deployment.gpus

    @property
    def overloaded(self) -> bool:
        """Whether requests arrive faster than they can be served."""
        rate = summary(self.workload)["request_rate"]
        return bool(rate and self.sustainable and rate > self.sustainable * STEADY and not self.workload.concurrency)

    @property
    def not_modelled(self) -> list[str]:
        """Parts of this deployment and workload that the simulation leaves out, in sentences."""
        model = self.deployment.engine.model
        evenly = _EXPERTS if self.deployment.engine.steps is None else _CAPTURED_EXPERTS
        kernels = self.deployment.engine.plan.kernels
        keeps = [_WINDOW.format(VERSIONS[kernels])] if model.window and kernels == "trtllm" else []
        limits = [
            *keeps,
            *([_FOUND] if self.deployment.engine.limits.apart else []),
            *([evenly] if model.experts else []),
            *([_TRANSFERS] if self.deployment.prefill and self.deployment.engine.cluster.network else []),
        ]
        limits += [_CONTEXT] if self.deployment.engine.plan.dcp > 1 else []
        limits += [_INT8_CACHE] if self.deployment.engine.plan.cache == "int8" else []
        limits += encoder_limits(model, kernels)
        limits += [_GRAPHS] if _has_uncertain_graphs(model, self.deployment.engine.plan) else []
        limits += notes(self.deployment.engine.cluster.gpu, self.deployment.engine.prices)
        if self.deployment.engine.plan.max_loras:
            limits.append(
                "Copies of LoRA adapters from host memory to the GPU are not modelled, nor adapters of experts, "
                "embeddings and logits."
            )
        plan = self.deployment.engine.plan
        if "sglang" in (plan.scheduler, plan.kernels) and plan.scheduler != "vllm":
            if plan.pp > 1:
                limits.append("SGLang's scheduling of pipeline stages is not modelled: they are scheduled as vLLM's.")
            if plan.drafting is not None:
                limits.append("SGLang's memory reservations for drafted tokens are not modelled.")
        if (self.workload.grammar_ns >= 0).any():
            limits.append(
                "Grammars are compiled as if a host thread were free for each. Drafted tokens that a grammar forbids "
                "are not told from others."
            )
        limits += [_STATES] if any(isinstance(mixer, _UNCALIBRATED) for mixer in model.mixers) else []
        return limits + list(model.notes)

    @property
    def notes(self) -> list[str]:
        """Notes for the reader."""
        engine = self.deployment.engine
        notes = refused.sentences(self.served, engine.limits)
        notes += [text for text in (shortening_note(engine), _about_version(engine)) if text]
        if self.deployment.life is not None:
            notes.append(self._about_life(self.deployment.life))
        if self.deployment.engine.plan.drafting is not None:
            notes.append(self.deployment.engine.plan.drafting.text)
        if self.overloaded and self.sustainable is not None:
            rate = summary(self.workload)["request_rate"]
            notes.append(
                f"Overloaded: {plain(rate)} requests/s arrive, {plain(self.sustainable)} are sustainable. Queue and "
                "TTFT grow for as long as the load lasts, so TTFT depends on the length of this workload."
            )
        notes += self.workload.remarks
        if self.workload.skipped:
            notes.append(
                f"{len(self.workload.skipped)} rows of the trace were skipped, e.g. {self.workload.skipped[0]}."
            )
        is_searched = self.sustainable is not None and self.fleet is None and self.served.finished.any()
        if self.slo.bounds and self.knee is None and is_searched:
            figures = self.slo.figures_ms(metrics.latencies_ms(self.served))
            achieved = ", ".join(f"{name.upper()} {figure:.4g} ms" for name, figure in figures.items())
            notes.append(f"No rate meets {self.slo.text}; the simulated run has {achieved}.")
        return notes

    def _about_life(self, life: Life) -> str:
        notes = f"Engines need {life.start_s:g} s to start (set with --start-up)"
        if life.mtbf_h is not None:
            notes += (
                f" and fail every {life.mtbf_h:g} h on average; their requests {life.after_failure} after "
                f"{life.detect_s:g} s"
            )
        if self.slo.bounds:
            notes += ". The largest rate is not searched, because it would depend on the duration of the load"
        return notes + "."


def figures_of_fast_prefill(
    deployment: Deployment, workload: Workload, slo: Slo | None = None, seed: int = 0
) -> dict[str, Any] | None:
    """Figures if engines that prefill apart are as fast as they may be; None without such engines."""
    if deployment.prefill is None:
        return None
    fleet = deployment.fleet(seed=seed, prefill=calibration.value("serving.fastest_prefill"))
    return metrics.bench(simulate(workload, fleet), slo)


def predict(
    deployment: Deployment, workload: Workload, slo: Slo | None = None, *, seed: int = 0, find_knee: bool = True
) -> Prediction:
    """Simulate a workload, three times for the intervals; with an SLO, also search for the largest rate."""
    if not len(workload):
        raise InputError("the workload has no requests; give at least one")
    slo = slo or Slo()
    served = simulate(workload, deployment.fleet(seed=seed))
    figures = metrics.bench(served, slo)
    width = min(_Z80 * deployment.engine.uncertainty, 0.9)
    low, high = (
        metrics.bench(simulate(workload, deployment.fleet(1 + sign * width, 1 + sign * _HOST_DOUBT, seed)), slo)
        for sign in (-1, 1)
    )
    engine = deployment.engine
    interval_by_figure = intervals(
        figures, low, high, engine.plan.kernels, calibrated=engine.overheads.calibrated,
        fast_prefill=figures_of_fast_prefill(deployment, workload, slo, seed),
    )  # fmt: skip
    by_clock = summary(workload)["request_rate"]
    sustainable = sustainable_rate(deployment, workload, seed) if by_clock else None
    knee = None
    if sustainable and by_clock and slo.bounds and find_knee and deployment.life is None:
        knee = largest_rate(deployment, workload, slo, sustainable, by_clock, seed)
    blocks = deployment.engine.limits.num_gpu_blocks - 1
    return Prediction(
        deployment, workload, served, slo, figures, interval_by_figure, metrics.engine_figures(served, blocks),
        sustainable, knee, fleets.summary(served, deployment.engine.plan.gpus) if deployment.life is not None else None,
    )  # fmt: skip
