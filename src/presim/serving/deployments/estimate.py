"""Steady state of an engine in closed form, from its step times: latency and throughput with a batch always full.

It takes microseconds and leaves out queues, so it tells which deployments are worth a simulation, not which is best.
"""

from __future__ import annotations

import math

from presim.serving.kept_bytes import model_token_bytes
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.overheads import Overheads
from presim.serving.steps.times import PricedEngine

_ROUNDS = 4  # after which the number of requests in the engine changes by less than one


def steady(
    engine: PricedEngine, batch: int, prompt: int, output: int, cached: int = 0
) -> tuple[float, float, float] | None:
    """(TTFT ms, TPOT ms, tokens/s) of an engine that always has ``batch`` requests in flight; None if they do not fit.

    Of an engine with data-parallel ranks: of one rank. ``cached``: tokens of a prompt that the prefix cache has.

    While a request decodes for ``output`` steps, the other requests of the batch prefill: vLLM's steps then also carry
    the tokens of ``batch`` prompts, SGLang's steps with prompts no decodes. A step takes the longer of host and device
    time, as with asynchronous scheduling.
    """
    if not engine.limits.holds(batch, prompt - cached + output) or batch > engine.limits.max_num_seqs:
        return None
    stages = engine.limits.pipeline_parallel_size
    server_ns = _server_ns(engine.overheads, prompt, batch)
    in_engine = float(batch)
    for _ in range(_ROUNDS):
        decode, prefill, request_ns = _times_ns(engine, in_engine, prompt, output, cached)
        in_engine = max(batch * (request_ns + prefill) / (request_ns + prefill + server_ns), 1.0)
    ttft = (prefill * stages + 0.5 * decode + server_ns) / 1e6
    return ttft, request_ns / output / 1e6, batch * output / (request_ns + prefill + server_ns) * 1e9


def _times_ns(
    engine: PricedEngine, in_engine: float, prompt: int, output: int, cached: int
) -> tuple[float, float, float]:
    """ns of a decoding step, of a prompt, and of a request's decoding, while so many requests are in the engine."""
    times, limits = engine.times, engine.limits
    stages = limits.pipeline_parallel_size
    share = math.ceil(in_engine / stages)  # requests per batch in flight: a pipeline has one batch per stage
    host = times.host_ns + times.back_ns + (times.host_seq_ns + times.back_seq_ns) * share
    context = prompt + output // 2
    decode = max(times.step_ns([], [context] * share), host + times.launch_ns(share, prompts=False))
    computed = prompt - cached
    chunk = min(computed, max(limits.max_num_batched_tokens - share, 1))
    pieces = -(-computed // chunk)
    keys = [cached + min((piece + 1) * chunk, computed) for piece in range(pieces)]
    # Prefill of one prompt, in vLLM's steps that also decode the other requests.
    num_decoding = 0 if limits.scheduler == "sglang" else share - 1
    launched = host + times.launch_ns(chunk + num_decoding, prompts=True)
    mixed = [max(times.step_ns([(chunk, key)], [context] * num_decoding), launched) for key in keys]
    prefill = sum(mixed)
    extra = in_engine * max(prefill - pieces * decode, 0.0)
    if limits.scheduler == "sglang":
        extra = (in_engine - 1) * (prefill if pieces > 1 else _together_ns(engine, computed, in_engine / output, host))
    # duration of one request: its decoding plus the prefills of others
    return decode, prefill, output * decode * stages + extra


def _server_ns(overheads: Overheads, prompt: int, batch: int) -> float:
    """Time of the server between the end of a request and the start of the next one."""
    input_us = overheads.input_us + prompt * overheads.input_token_us + batch * overheads.input_load_us
    return (input_us + overheads.output_us) * 1e3


def _together_ns(engine: PricedEngine, prompt: int, mean_ended: float, host: float) -> float:
    """Time of a prompt in SGLang's steps of prompts alone, of which each has those that came during one decoding step.

    ``mean_ended``: requests that end in a decoding step, in the mean. If they are Poisson distributed, a step of
    prompts has mean_ended / (1 - exp(-mean_ended)) of them.
    """
    times, limits = engine.times, engine.limits
    most_prompts = max(min(limits.max_num_batched_tokens // prompt, limits.max_num_seqs) - 1, 1)
    count = min(-mean_ended / math.expm1(-mean_ended), most_prompts)
    num_prompts = int(count)

    def step_ns(prompts: int) -> float:
        tokens = min(prompts * prompt, limits.max_num_batched_tokens)
        launched = host + times.launch_ns(tokens, prompts=True)
        return max(times.step_ns([(tokens // prompts, prompt)] * prompts, []), launched)

    return (step_ns(num_prompts) * (num_prompts + 1 - count) + step_ns(num_prompts + 1) * (count - num_prompts)) / count


def accepted_tokens(plan: ServingPlan) -> float:
    """Tokens that a decoding step yields, in the mean."""
    if plan.drafting is None:
        return 1.0
    likely = plan.drafting.acceptance
    return sum(likely**count for count in range(plan.drafting.tokens + 1))


def decoding(engine: PricedEngine, batch: int, prompt: int, output: int) -> tuple[float, float] | None:
    """(TPOT ms, tokens/s) of an engine, or a data-parallel rank, that only decodes; None if they do not fit."""
    times, limits = engine.times, engine.limits
    if not limits.holds(batch, prompt + output) or batch > limits.max_num_seqs:
        return None
    stages = limits.pipeline_parallel_size
    share = -(-batch // stages)
    host = times.host_ns + times.back_ns + (times.host_seq_ns + times.back_seq_ns) * share
    launched = host + times.launch_ns(share, prompts=False)
    decode = max(times.step_ns([], [prompt + output // 2] * share), launched) * stages
    return decode / 1e6, batch / (decode / 1e9)


def prefilling(engine: PricedEngine, batch: int, prompt: int, cached: int = 0) -> tuple[float, float]:
    """(ms until the first token, ns of a prompt) of an engine, or a rank, that only prefills, without the transfer."""
    times, limits, computed = engine.times, engine.limits, prompt - cached
    chunk = min(computed, limits.max_num_batched_tokens)
    pieces = -(-computed // chunk)
    chunk_ends = [cached + min((piece + 1) * chunk, computed) for piece in range(pieces)]
    prefill = sum(times.step_ns([(chunk, end)], []) for end in chunk_ends)
    server_ns = _server_ns(engine.overheads, prompt, batch)
    return (prefill * limits.pipeline_parallel_size + server_ns) / 1e6, prefill


def transfer_ns(prefill: PricedEngine, decode: PricedEngine, prompt: int) -> float:
    """ns in which the keys and values of a prompt go from one engine to another, by the ports of the slower."""
    token_bytes = model_token_bytes(prefill.model, prefill.plan.cache, prefill.cluster.gpu.architecture)
    engines = (prefill,) if prefill.cluster.gpu.id == decode.cluster.gpu.id else (prefill, decode)
    ports_bytes_per_s = min(engine.cluster.network_bytes_per_s * engine.plan.tp for engine in engines)
    return prompt * token_bytes / ports_bytes_per_s * 1e9
