"""Peak of the activations in vLLM's profiling run, which the KV cache does not get."""

from __future__ import annotations

from presim.composition.models.decoder_layers import Dense, Experts, FeedForward, WeightType
from presim.composition.models.description import Model
from presim.serving.engine_versions import numbers_of
from presim.serving.kv.startup import asked_length
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps import encoder_profile

_INDEXER_LOGITS = 512 << 20  # vLLM 0.33's VLLM_SPARSE_INDEXER_MAX_LOGITS_MB
_SPARSE_TOKENS = 5  # its sparse_mla_prefill_workspace_factor: so many times max_model_len tokens are unpacked at once
# Bytes of a logit at the peak of the profiling run: in 16 and 32 bits and as a probability. From 0.8 to 0.16 it is also
# sorted with its index: 38.4 to 38.9 bytes in seven logs of four vocabularies (llm-d's profiles of 0.11 on H100s). Its
# kernel without a sort came in February 2026 (vLLM's pull request 33538): 14.9 to 15.9 bytes in logs of 0.19 of ten
# models on an H100 (llm-d's accuracy report of its planner). FlashInfer's is the default later (40376), but the former
# model runner also profiles the other (41375): 0.67 GiB between 256 and 8 sequences on an RTX 5090 (recipe of
# Qwen3.8-27B, vLLM 0.26).
_LOGIT_BYTES = 10.0
_LOGIT_BYTES_SORTED, _SORTED = 38.6, ((0, 8), (0, 17))
_LOGIT_BYTES_OF_FORMER_RUNNER = 15.25
# With drafts it runs the rejection sampler, too, of one draft a sequence (v1/sample/rejection_sampler.py): 4 bytes for
# both logits, 6 for the last one's copy and raw value, and 16 for raw and processed targets, probabilities and noise.
_LOGIT_BYTES_OF_DRAFTS = 26.0
# The first version of those logs: buffers between the experts' two products stay allocated while the sampler runs. With
# them six models with experts are met within 8 %, and without them their peaks are up to 0.7 GiB too low.
_KEEPS_WORKSPACES = (0, 17)
_WITH_WORKSPACES: tuple[WeightType, ...] = ("bf16", "fp8", "fp8-block", "int8")  # gpt-oss's MXFP4 has none there


# The other runner is the default for models without experts and states from 0.25 on (vLLM's pull request 44443, merged
# on 2026-07-02), and for all from 0.29 on (53183, 2026-08-26; a log of 0.28 of a model with states has the former's).
_OTHER_RUNNER_OF_DENSE, _OTHER_RUNNER = (0, 25), (0, 29)


def has_former_runner(model: Model, plan: ServingPlan) -> bool:
    """Whether vLLM's first model runner executes the model, by default for the plan's version."""
    if plan.kernels != "vllm" or plan.engine_version is None:
        return False
    version = numbers_of(plan.engine_version)
    is_dense = model.experts is None and not model.recurrent
    return version < (_OTHER_RUNNER_OF_DENSE if is_dense else _OTHER_RUNNER)


def activation_bytes(model: Model, plan: ServingPlan) -> int:
    """Peak activation bytes of vLLM's profiling run: of max_num_batched_tokens in one layer, or in the sampler."""
    tokens = plan.max_num_batched_tokens
    widest = max((_widest(part, plan) for kind in model.kinds for part in kind.feed_forwards), default=0.0)
    layer = tokens * (4 * model.hidden + widest * 1.5) * 2
    logits = plan.max_num_seqs * model.vocabulary * _logit_bytes(model, plan) + _workspace(model, plan)
    encoder, encoded = encoder_profile.peak_bytes(model, plan) if plan.kernels == "vllm" else (0, 0)
    return max(int(max(layer, logits)) + _sparse_workspace(model, plan) + encoded, encoder)


def _logit_bytes(model: Model, plan: ServingPlan) -> float:
    """Bytes of each logit of max_num_seqs sequences at the sampler's peak, by the engine's version."""
    if plan.kernels != "vllm" or plan.engine_version is None:
        return _LOGIT_BYTES
    version = numbers_of(plan.engine_version)
    if version < _SORTED[0] or not has_former_runner(model, plan):
        return _LOGIT_BYTES
    if version < _SORTED[1]:
        return _LOGIT_BYTES_SORTED
    return _LOGIT_BYTES_OF_DRAFTS if plan.drafting else _LOGIT_BYTES_OF_FORMER_RUNNER


def _workspace(model: Model, plan: ServingPlan) -> int:
    """Buffers of the experts: inputs or outputs of all choices, whichever is wider, and what is between."""
    is_older = plan.engine_version is not None and numbers_of(plan.engine_version) < _KEEPS_WORKSPACES
    if plan.kernels != "vllm" or is_older or plan.of_experts not in _WITH_WORKSPACES:
        return 0
    experts = {part for kind in model.kinds for part in kind.feed_forwards if isinstance(part, Experts)}
    sizes = (_choice_elements(part, plan) * part.chosen for part in experts)
    return int(2 * plan.max_num_batched_tokens * max(sizes, default=0.0))


def _choice_elements(experts: Experts, plan: ServingPlan) -> float:
    width = experts.width / (1 if plan.ep else plan.tp)
    return max((experts.matrices - 1) * width, experts.hidden) + width


def _widest(part: FeedForward, plan: ServingPlan) -> float:
    """Elements of a token between the products of a feed-forward."""
    if isinstance(part, Dense):
        return (part.matrices - 1) * part.width / plan.tp
    routed = part.chosen * (2 * part.width / (1 if plan.ep else plan.tp) + part.hidden)
    return routed / (plan.tp if plan.ep else 1)


def _sparse_workspace(model: Model, plan: ServingPlan) -> int:
    """Of sparse attention: unpacked keys and values of prompts in 16 bits, and the indexer's scores."""
    if model.latent is None or model.indexer is None:
        return 0
    return 2 * _SPARSE_TOKENS * asked_length(model, plan) * (model.latent.rank + model.latent.rope) + _INDEXER_LOGITS
