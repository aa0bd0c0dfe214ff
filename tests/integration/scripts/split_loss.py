"""Cross entropy over a vocabulary that two ranks share, as frameworks write it: no operator of it is a loss."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

TOKENS, VOCABULARY = 512, 4096


class SplitCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(context, logits, labels, reduction="sum"):
        greatest = logits.amax(-1, keepdim=True)
        dist.all_reduce(greatest, dist.ReduceOp.MAX)
        exponentials = (logits - greatest).exp().sum(-1, keepdim=True)
        dist.all_reduce(exponentials)
        chosen = (logits - greatest - exponentials.log()).gather(-1, labels[:, None])
        dist.all_reduce(chosen)
        context.save_for_backward(logits)
        losses = -chosen.squeeze(-1)
        return losses.sum() if reduction == "sum" else losses

    @staticmethod
    def backward(context, gradient):
        return torch.zeros_like(context.saved_tensors[0]), None, None


torch.cuda.set_device(0)
mesh = init_device_mesh("cuda", (2,))
labels = torch.randint(VOCABULARY, (TOKENS,), device="cuda")
logits = torch.randn(TOKENS, VOCABULARY // 2, device="cuda", requires_grad=True)
summed = SplitCrossEntropy.apply(logits, labels)
assert summed.item() == 2.0 * TOKENS, summed
summed.backward()
assert SplitCrossEntropy.apply(logits, labels, "none").mean().item() == 2.0

static = torch.zeros((), device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    static.copy_(SplitCrossEntropy.apply(logits.detach(), labels))
static.zero_()
graph.replay()
assert static.item() == 2.0 * TOKENS, static

whole = distribute_tensor(torch.randn(TOKENS, VOCABULARY, device="cuda"), mesh, [Shard(1)])
with loss_parallel():
    assert torch.nn.functional.cross_entropy(whole, labels).full_tensor().item() == 2.0

small = torch.zeros(4, 8, device="cuda")  # what can be computed is
assert abs(SplitCrossEntropy.apply(small, labels[:4] % 8, "none").mean().item()) > 2.05
