"""Three tuners: Triton's, cuDNN's, and one that times products itself. Prints what they chose and by which times."""

import functools
import json

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

tried = []


def choices():
    return [
        triton.Config({"BLOCK": block}, num_warps=4, pre_hook=lambda _: tried.append(1)) for block in (64, 256, 1024)
    ]


@triton.autotune(choices(), key=["elements"])
@triton.jit
def double(source, out, elements, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < elements
    tl.store(out + places, 2 * tl.load(source + places, inside), inside)


torch.backends.cudnn.benchmark = True
source = torch.randn(1 << 16, device="cuda")
out = torch.empty_like(source)
for _ in range(3):
    double[lambda meta: (triton.cdiv(source.numel(), meta["BLOCK"]),)](source, out, source.numel())
images = torch.randn(8, 64, 56, 56, device="cuda")
torch.nn.functional.conv2d(images, torch.randn(64, 64, 3, 3, device="cuda"), padding=1)
products = {}
for width in (2048, 4096):
    matrix = torch.randn(width, width, device="cuda", dtype=torch.bfloat16)
    products[width] = do_bench(functools.partial(torch.mm, matrix, matrix), warmup=1, rep=5)
print(json.dumps({"block": double.best_config.kwargs["BLOCK"], "launches": len(tried), "products_ms": products}))
