"""A layer of experts that exchanges tokens by DeepEP and by HybridEP, as Megatron-core calls them; checks sizes."""

import os

import torch
import torch.distributed as dist
from deep_ep import Buffer, Config, HybridEPBuffer
from deep_ep.hybrid_ep_buffer import indices_to_map
from deep_ep.utils import EventHandle, EventOverlap

EXPERTS, CHOSEN, WIDTH, TOKENS, SMS = 32, 4, 1024, 512, 24

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
group, ranks = dist.group.WORLD, dist.get_world_size()
torch.manual_seed(1)  # unseeded, one run in five or so leaves this rank's experts too few tokens
x = torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
weights, chosen = torch.randn(TOKENS, EXPERTS, device="cuda").softmax(-1).topk(CHOSEN)
rows = TOKENS * CHOSEN  # of all this rank's experts, where choices are about balanced

Buffer.set_num_sms(SMS)
config = Buffer.get_dispatch_config(ranks)
buffer = Buffer(group, config.get_nvl_buffer_size_hint(2 * WIDTH, ranks), config.get_rdma_buffer_size_hint(0, ranks))
before = EventOverlap(EventHandle())
by_rank, by_host, by_expert, is_in, ready = buffer.get_dispatch_layout(chosen, EXPERTS, previous_event=before)
sent, indices, probs, counts, handle, done = buffer.dispatch(
    x, topk_idx=chosen, topk_weights=weights, num_tokens_per_rank=by_rank, num_tokens_per_rdma_rank=by_host,
    is_token_in_rank=is_in, num_tokens_per_expert=by_expert, previous_event=ready, async_finish=True,
)  # fmt: skip
done.current_stream_wait()
assert abs(sum(counts) - rows) < 0.1 * rows
assert TOKENS < sent.shape[0] < rows  # some ranks have two of a token's experts
assert indices.shape == probs.shape == (sent.shape[0], CHOSEN)
assert (indices >= 0).sum().item() == sum(counts)
back, _, done = buffer.combine(sent, handle, config=Config(SMS, 16, 256, 6, 128), async_finish=False)
done.current_stream_wait()
assert back.shape == x.shape

hybrid = HybridEPBuffer(
    group=group, hidden_dim=WIDTH, max_num_of_tokens_per_rank=TOKENS, num_local_experts=EXPERTS // ranks, use_fp8=False,
    num_sms_dispatch_api=SMS, num_sms_combine_api=SMS,
)  # fmt: skip
taken, shares = indices_to_map(chosen, weights, TOKENS, EXPERTS)
sent, probs, scales, counts, handle = hybrid.dispatch_with_permute(
    hidden=x, routing_map=taken, probs=shares, pad_multiple=48
)
assert sent.shape == (counts.sum(), WIDTH)
assert probs.shape == sent.shape[:1]
assert counts.sum() >= rows
assert not (counts % 48).any()
back, shares = hybrid.combine_with_unpermute(hidden=sent, probs=probs, handle=handle, pad_multiple=48)
assert back.shape == x.shape
assert shares.shape == (TOKENS, EXPERTS)
torch.cuda.synchronize()
