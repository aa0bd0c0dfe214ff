"""Transformer Engine's fused router: the host reads the loads of experts, in eager mode and from a CUDA graph."""

import torch
from transformer_engine.pytorch.router import fused_topk_with_score_function

TOKENS, EXPERTS, EXPERTS_PER_TOKEN = 512, 16, 4


def route(logits: torch.Tensor) -> torch.Tensor:
    """The map from tokens to experts."""
    _, route_map = fused_topk_with_score_function(logits, EXPERTS_PER_TOKEN, False, None, None, None, "softmax", None)
    return route_map


def main() -> None:
    logits = torch.randn(TOKENS, EXPERTS, device="cuda")
    balanced_loads = [TOKENS * EXPERTS_PER_TOKEN // EXPERTS] * EXPERTS
    assert route(logits).sum(0).tolist() == balanced_loads
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        route_map = route(logits)
    graph.replay()
    assert route_map.sum(0).tolist() == balanced_loads


if __name__ == "__main__":
    main()
