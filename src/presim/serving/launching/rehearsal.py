"""The `presim serve` command of a deployment: its figures in detail, and an endpoint that stands for the engines."""

from __future__ import annotations

import shlex

from presim.serving.deployments.deployment import Deployment
from presim.serving.launching.launch_set import ROUTER_PORT
from presim.serving.serving_plan import ServingPlan


def serve_words(word: str, deployment: Deployment) -> list[str]:
    """Words of `presim serve` for the deployment of the model that ``word`` means, without a load."""
    engine, cluster = deployment.engine, deployment.engine.cluster
    words = ["presim", "serve", word, "--gpu", cluster.gpu.id, *_plan_words(engine.plan)]
    words += ["--router", deployment.router]
    words += ["--replicas", str(deployment.replicas)] if deployment.replicas > 1 else []
    if deployment.prefill is not None:
        words += ["--prefill-replicas", str(deployment.prefill_replicas)]
        words += (
            ["--prefill-tp", str(deployment.prefill.plan.tp)] if deployment.prefill.plan.tp != engine.plan.tp else []
        )
        prefill_gpu = deployment.prefill.cluster.gpu.id
        words += ["--prefill-gpu", prefill_gpu] if prefill_gpu != cluster.gpu.id else []
    return words


def calibrate_words(word: str, deployment: Deployment) -> list[str]:
    """Words of `presim calibrate serving` for a result of vLLM's bench with the deployment."""
    _, _, _, *options = serve_words(word, deployment)
    return ["presim", "calibrate", "serving", word, "--from", "result.json", *options]


def _plan_words(plan: ServingPlan) -> list[str]:
    words = ["--tp", str(plan.tp)]
    words += ["--pp", str(plan.pp)] if plan.pp > 1 else []
    words += ["--dp", str(plan.dp)] if plan.dp > 1 else []
    words += ["--ep"] if plan.ep else []
    words += [] if plan.as_published else ["--weights", plan.weights]
    words += ["--expert-weights", plan.expert_weights] if plan.expert_weights and not plan.as_published else []
    words += ["--kv", plan.cache] if plan.cache != "bf16" else []
    words += ["--kernels", plan.kernels] if plan.kernels != "vllm" else []
    words += ["--engine-version", plan.engine_version] if plan.engine_version else []
    words += ["--kv-host", f"{plan.offload.host_gib:g}"] if plan.offload else []
    words += ["--max-num-seqs", str(plan.max_num_seqs), "--max-num-batched-tokens", str(plan.max_num_batched_tokens)]
    words += ["--max-model-len", str(plan.max_model_len)] if plan.max_model_len is not None else []
    words += ["--gpu-memory-utilization", f"{plan.gpu_memory_utilization:g}"]
    if plan.drafting is not None:
        drafting = plan.drafting
        words += ["--speculative", drafting.method, "--draft-tokens", str(drafting.tokens)]
        words += ["--acceptance", f"{drafting.acceptance:g}"]
    return words


def rehearsal_script(word: str, deployment: Deployment) -> str:
    """Starts presim's endpoint at the router's address, so that bench.sh can be tried without GPUs."""
    listening = shlex.join([*serve_words(word, deployment), "--listen"])
    return f"""#!/bin/sh
# Simulated engines at the router's address, to try bench.sh without GPUs. SLOWER=4 for this script and bench.sh: time
# passes at a quarter of its speed, so that a client's own time is less of what it measures.
exec {listening} "${{PORT:-{ROUTER_PORT}}}" --speed "$(awk "BEGIN {{ print 1 / ${{SLOWER:-1}} }}")"
"""
