"""Train a graph attention network (PyTorch Geometric) on one random graph of the size of ogbn-arxiv.

presim run --gpu h100-sxm examples/graph_attention.py
"""

import argparse

import torch
from torch.nn import functional
from torch_geometric.nn import GAT
from torch_geometric.utils import add_remaining_self_loops

FEATURES, CLASSES = 128, 40


def main() -> None:
    """Some steps over the whole graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=169_343)
    parser.add_argument("--edges", type=int, default=1_166_243)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()

    features = torch.randn(options.nodes, FEATURES).cuda()
    labels = torch.randint(CLASSES, (options.nodes,)).cuda()
    edges, _ = add_remaining_self_loops(torch.randint(options.nodes, (2, options.edges)))
    edges = edges.cuda()
    model = GAT(
        FEATURES,
        options.width,
        options.layers,
        CLASSES,
        heads=options.heads,
        dropout=0.5,
        add_self_loops=False,  # they are there, once and not in each layer again
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(options.steps):
        functional.cross_entropy(model(features, edges), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
