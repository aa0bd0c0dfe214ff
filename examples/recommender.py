"""Train a DLRM: embedding tables spread over the ranks, small MLPs on all of them (Naumov et al., 2019).

Each rank looks up its tables for everybody's samples; an all-to-all brings each sample's vectors to the rank that has
the sample, and their gradients back.

presim run --gpu h100-sxm --nodes 1 examples/recommender.py
"""

import argparse
import itertools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

DENSE = 13  # numbers of each sample, as in the Criteo data


def mlp(*widths: int) -> nn.Sequential:
    """Linear layers, each with a ReLU."""
    layers = [(nn.Linear(before, after), nn.ReLU()) for before, after in itertools.pairwise(widths)]
    return nn.Sequential(*(part for layer in layers for part in layer))


class Dense(nn.Module):
    """What every rank has: both MLPs and the products of all pairs of vectors between them."""

    def __init__(self, tables: int, dimension: int) -> None:
        super().__init__()
        vectors = tables + 1
        self.bottom = mlp(DENSE, 512, 256, dimension)
        self.top = mlp(dimension + vectors * (vectors - 1) // 2, 1024, 1024, 512, 256)
        self.click = nn.Linear(256, 1)
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)

    def forward(self, numbers: torch.Tensor, looked_up: torch.Tensor) -> torch.Tensor:
        """Click logits of samples with these numbers and these vectors out of the tables."""
        bottom = self.bottom(numbers)
        vectors = torch.cat([bottom[:, None], looked_up], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        top = self.top(torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], dim=1))
        return self.click(top).squeeze(1)


class Recommender(nn.Module):
    """Tables of this rank and the dense part."""

    def __init__(self, tables: int, rows: int, dimension: int) -> None:
        super().__init__()
        own = range(dist.get_rank(), tables, dist.get_world_size())
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, dimension, mode="sum", sparse=True) for _ in own)
        device = torch.cuda.current_device()
        self.dense = DistributedDataParallel(Dense(tables, dimension), device_ids=[device], broadcast_buffers=False)

    def forward(self, numbers: torch.Tensor, ids: list[torch.Tensor]) -> torch.Tensor:
        """Click logits of this rank's samples; ``ids`` are everybody's for the tables of this rank."""
        vectors = torch.stack([table(bag) for table, bag in zip(self.tables, ids)], dim=1)
        mine = all_to_all_single_autograd(vectors, None, None, dist.group.WORLD)
        batch, dimension = len(numbers), vectors.shape[-1]
        by_sample = mine.view(-1, batch, len(self.tables), dimension).transpose(0, 1).reshape(batch, -1, dimension)
        return self.dense(numbers, by_sample)


def main() -> None:
    """Some steps on random samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=32, help="a multiple of the world size")
    parser.add_argument("--rows", type=int, default=4_000_000, help="of each table")
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--bag", type=int, default=20, help="rows looked up in a table for a sample")
    parser.add_argument("--batch", type=int, default=2048, help="samples of a rank")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()

    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    with device:
        model = Recommender(options.tables, options.rows, options.dimension)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    everybody = options.batch * dist.get_world_size()
    for _ in range(options.steps):
        numbers = torch.randn(options.batch, DENSE, device=device)
        ids = [torch.randint(options.rows, (everybody, options.bag), device=device) for _ in model.tables]
        clicks = torch.randint(2, (options.batch,), device=device).float()
        functional.binary_cross_entropy_with_logits(model(numbers, ids), clicks).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
