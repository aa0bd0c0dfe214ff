"""Small tensors of the device hold what the program computed; each line fails where one does not."""

import os

import torch

device = "cuda"
x = torch.tensor([3, 1, 2, 0], device=device)
assert torch.arange(4, device=device).tolist() == [0, 1, 2, 3]
assert (x + 1).tolist() == [4, 2, 3, 1]
assert x.sort().values.tolist() == [0, 1, 2, 3]
assert x.argsort().tolist() == [3, 1, 2, 0]
assert x.cumsum(0).tolist() == [3, 4, 6, 6]
assert torch.nonzero(x > 1).tolist() == [[0], [2]]
assert x[x > 1].tolist() == [3, 2]
assert torch.masked_select(x, x > 0).tolist() == [3, 1, 2]
assert torch.where(x > 1)[0].tolist() == [0, 2]
assert torch.bincount(x).tolist() == torch.histc(x, bins=4, min=0, max=3).tolist() == [1, 1, 1, 1]
assert torch.repeat_interleave(x).tolist() == [0, 0, 0, 1, 2, 2]
assert torch.unique(torch.tensor([3, 3, 1], device=device)).tolist() == [1, 3]
assert torch.unique_consecutive(torch.tensor([1, 1, 2], device=device), return_counts=True)[1].tolist() == [2, 1]
assert torch.unique(torch.tensor([[1, 2], [1, 2], [0, 1]], device=device), dim=0).tolist() == [[0, 1], [1, 2]]
assert torch.nn.functional.one_hot(x, 4).argmax(1).tolist() == [3, 1, 2, 0]
assert torch.equal(x, x.clone())
assert not torch.equal(x, x + 1)
assert torch.allclose(x.float(), x.float())

table = torch.zeros(3, 3, device=device)  # in place, through views, by index
table[:, 1] = 2.5
table.index_put_(
    (torch.tensor([0], device=device), torch.tensor([2], device=device)), torch.tensor([7.0], device=device)
)
table[2].add_(1)
assert table.tolist() == [[0, 2.5, 7], [0, 2.5, 0], [1, 3.5, 1]]
total = torch.empty(3, device=device)
torch.sum(table, dim=1, out=total)
assert total.tolist() == [9.5, 2.5, 5.5]
assert [t.tolist() for t in torch._foreach_add([x, table[0]], 1)] == [[4, 2, 3, 1], [1, 3.5, 8]]
torch._foreach_mul_([x, total], 2)  # of several types: operators within the operator
assert x.tolist() == [6, 2, 4, 0]
assert total.tolist() == [19, 5, 11]

for count in (3, 20_000):  # more than 64 KiB as well, as far as it was known
    grown = torch.arange(count, device=device).resize_(40_000)
    assert grown[count - 3 : count].tolist() == [count - 3, count - 2, count - 1]

host_state = torch.get_rng_state()
torch.manual_seed(1)
first = torch.rand(3, device=device).tolist()
torch.manual_seed(1)
assert torch.rand(3, device=device).tolist() == first != torch.rand(3, device=device).tolist()
assert sorted(torch.randperm(5, device=device).tolist()) == [0, 1, 2, 3, 4]
assert set(torch.bernoulli(torch.full((9,), 0.5, device=device)).tolist()) <= {0.0, 1.0}
torch.set_rng_state(host_state)  # the host's generator gives the device no numbers
torch.randn(8, device=device), torch.randint(5, (8,), device=device)
assert torch.equal(torch.get_rng_state(), host_state)

weight = torch.randn(4, 4, device=device, requires_grad=True)
(weight * weight).sum().backward()
assert torch.allclose(weight.grad, 2 * weight)

routing = torch.ones(32768, 128, dtype=torch.bool, device=device)  # tokens x experts: as large as values are known of
assert routing.sum(1).unique().tolist() == [128]

large = torch.randn(4096, 4096, device=device)  # nobody knows these: finite, and nothing unusual
assert large.mean().item() == large[0, 0].item() == 0.5
assert torch.isfinite(large).all()
assert not torch.isnan(large).any()


def resident() -> int:
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[1]) * os.sysconf("SC_PAGESIZE")


before = resident()
masks = [torch.native_dropout(large[:768], 0.1, True)[1] for _ in range(32)]  # 3 MiB each, that nobody writes
assert resident() - before < 32 << 20
known = torch.ones(4, device=device)
known.copy_(large[0, :4])  # what was known is not any more
assert known.tolist() == [0.5] * 4
logits = (large[:2048, :512] @ large[:512, :8]).bfloat16()  # small, and nobody knows them either
chosen = logits.softmax(-1).topk(2).indices
assert torch.bincount(chosen.flatten(), minlength=8).tolist() == [512] * 8  # spread by the policy, not all alike
likely = torch.where(torch.arange(8, device=device) > 5, logits[0].softmax(-1), 0)
assert sorted(torch.multinomial(likely, 2).tolist()) == [6, 7]  # beams draw several, of those that can be

graph, counter = torch.cuda.CUDAGraph(), torch.zeros(2, device=device)
side = torch.cuda.Stream()
with torch.cuda.graph(graph, stream=side):
    counter.add_(1)
    doubled = counter * 2
assert counter.tolist() == [0, 0]
for replay in (1, 2, 3):
    graph.replay()
    assert counter.tolist() == [replay] * 2
    assert doubled.tolist() == [2 * replay] * 2

norm = torch.nn.BatchNorm2d(3, device=device)
assert norm.running_mean.tolist() == [0.0] * 3
norm(torch.randn(8, 3, 224, 224, device=device))  # nobody knows its statistics any more, but how many there were
norm(torch.randn(8, 3, 224, 224, device=device))
assert norm.running_mean.tolist() == norm.running_var.tolist() == [0.5] * 3
assert norm.num_batches_tracked.item() == 2
norm.running_mean.fill_(0.25)
norm.eval()(torch.randn(8, 3, 224, 224, device=device))
assert norm.running_mean.tolist() == [0.25] * 3
print("every value is right")
