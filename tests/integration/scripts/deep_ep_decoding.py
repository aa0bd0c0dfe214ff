"""Experts of a decoding step that exchange tokens by DeepEP's low-latency kernels, as inference engines call them."""

import os

import torch
import torch.distributed as dist
from deep_ep import Buffer

EXPERTS, CHOSEN, WIDTH, TOKENS, MOST = 32, 4, 1024, 48, 64

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
group, ranks = dist.group.WORLD, dist.get_world_size()
x = torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
weights, chosen = torch.randn(TOKENS, EXPERTS, device="cuda").softmax(-1).topk(CHOSEN)

size = Buffer.get_low_latency_rdma_size_hint(MOST, WIDTH, ranks, EXPERTS)
assert size > 2 * 2 * EXPERTS * MOST * 2 * WIDTH  # sent and received, twice
before = torch.cuda.mem_get_info()[0]
buffer = Buffer(group, 0, size, low_latency_mode=True, num_qps_per_rank=EXPERTS // ranks)
assert before - torch.cuda.mem_get_info()[0] >= size
assert buffer.low_latency_mode
buffer.clean_low_latency_buffer(MOST, WIDTH, EXPERTS)
for use_fp8 in (True, False):
    sent, counts, handle, event, hook = buffer.low_latency_dispatch(
        x, chosen, MOST, EXPERTS, use_fp8=use_fp8, async_finish=False, return_recv_hook=True
    )
    hook()
    shape = (EXPERTS // ranks, ranks * MOST, WIDTH)
    if use_fp8:
        sent, factors = sent
        assert (factors.shape, factors.dtype) == ((*shape[:2], WIDTH // 128), torch.float32)
    assert (sent.shape, sent.dtype) == (shape, torch.float8_e4m3fn if use_fp8 else torch.bfloat16)
    assert (counts.shape, counts.dtype) == (shape[:1], torch.int32)
    results = sent.to(torch.bfloat16)
    back, event, hook = buffer.low_latency_combine(results, chosen, weights, handle, return_recv_hook=False)
    event.current_stream_wait()
    assert (back.shape, back.dtype) == (x.shape, x.dtype)
torch.cuda.synchronize()
