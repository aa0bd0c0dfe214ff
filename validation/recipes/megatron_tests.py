"""Megatron's GPT as Megatron-LM's own functional tests train it: each step checks and logs what its host waits for.

Megatron-LM's trainer checks by default (``--check-for-nan-in-loss-and-grad``) the loss of every micro-batch and the
gradients' norm in every bucket; its tests log in every step (``--log-interval 1``) the parameters' norm
(``--log-params-norm``) and how many gradients are zero (``--log-num-zeros-in-grad``), and its timers wait for all
ranks. All of these are read back, so that hosts never run ahead. Takes the options of megatron_gpt.py besides its own.
"""

import argparse
import os
import sys
from functools import partial

import megatron_gpt
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.optimizer.clip_grads import get_grad_norm_fp32
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.rerun_state_machine import get_rerun_state_machine
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate
from megatron.core.utils import check_param_hashes_across_dp_replicas


def parse() -> argparse.Namespace:
    """This recipe's own options; the others are left to ``megatron_gpt``."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--workspaces", help="CUBLAS_WORKSPACE_CONFIG, where it was not what PyTorch's default is now")
    parser.add_argument("--hash-weights", action="store_true", help="replicas compare their parameters after each step")
    own, others = parser.parse_known_args()
    sys.argv[1:] = others
    return own


def check(result: torch.Tensor, message: str) -> None:
    """That it is a number and finite, as Megatron's loss function asks in every micro-batch."""
    for rejects in (torch.isnan, torch.isinf):
        get_rerun_state_machine().validate_result(
            result=result, rejection_func=rejects, message=message, tolerance=0.0, fatal=True
        )


def loss(output: torch.Tensor):
    """Of one micro-batch: its sum, tokens, and what is logged of it."""
    total, tokens = output.float().sum(), torch.tensor(output.numel(), dtype=torch.int, device="cuda")
    check(total, "the loss is no number")
    return total, tokens, {"loss": torch.cat([total.detach().view(1), tokens.view(1)])}


def forward_step(o, batches, model, return_schedule_plan=False):
    """One micro-batch; its ranks of tensor parallelism have it from the first one."""
    group = parallel_state.get_tensor_model_parallel_group()
    source = parallel_state.get_tensor_model_parallel_src_rank()

    def shared():
        for tokens in batches:
            dist.broadcast(tokens, source, group=group)
            yield tokens

    output, _ = megatron_gpt.forward_step(o, shared(), model, return_schedule_plan)
    return output, loss


def parameters_norm(chunks, half: bool) -> float:
    """Over all ranks that hold different parameters; halves are widened, or their optimizer's copies are taken."""
    whole, shards = [], []
    for parameter in (each for chunk in chunks for each in chunk.parameters()):
        if not param_is_not_tensor_parallel_duplicate(parameter):
            continue
        copy = getattr(parameter, "main_param", None)
        if getattr(parameter, "main_param_sharded", False):
            shards.extend([] if copy is None else [copy])
        else:
            whole.append(copy if half and copy is not None else parameter.data.float())
    model_parallel = parallel_state.get_model_parallel_group()
    if not shards:
        return get_grad_norm_fp32(whole, grad_stats_parallel_group=model_parallel)
    everywhere = parallel_state.get_data_parallel_group(with_context_parallel=True)
    part = get_grad_norm_fp32(shards, grad_stats_parallel_group=everywhere)
    return (part**2 + get_grad_norm_fp32(whole, grad_stats_parallel_group=model_parallel) ** 2) ** 0.5


def agree(value: float) -> float:
    """The greatest of a rank's model-parallel group: how Megatron tells all stages what the optimizer's step gave."""
    greatest = torch.tensor([value or 0.0], dtype=torch.float32, device="cuda")
    dist.all_reduce(greatest, op=dist.ReduceOp.MAX, group=parallel_state.get_model_parallel_group())
    return greatest.item()


def log(losses) -> None:
    """What is printed at the end of a step, and its timer's barrier."""
    if losses:  # the last stage's
        mean = torch.vstack([each["loss"] for each in losses]).sum(dim=0)
        dist.all_reduce(mean, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
        (mean[0] / mean[1]).item()
    dist.barrier()
    torch.cuda.synchronize()


def train_step(o, schedule, streams, chunks, optimizer, micro_batches: int) -> None:
    """As Megatron-LM's trainer."""
    for chunk in chunks:
        chunk.zero_grad_buffer()
    optimizer.zero_grad()
    losses = schedule(
        forward_step_func=partial(forward_step, o),
        data_iterator=streams if len(chunks) > 1 else streams[0],
        model=chunks if len(chunks) > 1 else chunks[0],
        num_microbatches=micro_batches,
        seq_length=o.sequence,
        micro_batch_size=o.batch,
        forward_only=False,
    )
    succeeded, norm, zeros = optimizer.step()
    for value in (float(succeeded), norm, zeros):
        agree(value)
    parameters_norm(chunks, o.precision != "fp32")
    log(losses)


def hash_weights(chunks) -> None:
    """``--check-weight-hash-across-dp-replicas-interval 1``: hosts fetch every parameter, widen it and hash it."""
    check_param_hashes_across_dp_replicas(chunks, cross_check=True)
    dist.barrier()


def watch(chunks, optimizer) -> None:
    """Have zeros counted and gradients checked."""
    for each in (optimizer, *getattr(optimizer, "chained_optimizers", ())):
        if hasattr(each, "config"):
            each.config.log_num_zeros_in_grad = True
    for chunk in chunks:
        chunk.ddp_config.check_for_nan_in_grad = True


def random_tokens(o):
    """Without end: what each micro-batch reads."""
    while True:
        yield torch.randint(o.vocab, (o.batch, o.sequence // o.context_parallel), device="cuda")


def main(batches=random_tokens) -> None:
    """A few steps on what ``batches`` gives."""
    own = parse()
    if own.workspaces:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = own.workspaces
    o = megatron_gpt.parse()
    chunks, optimizer = megatron_gpt.prepare(o)
    watch(chunks, optimizer)
    schedule, streams = get_forward_backward_func(), [batches(o) for _ in chunks]
    for step in range(o.steps):
        count = o.accumulate[min(step, len(o.accumulate) - 1)]
        train_step(o, schedule, streams, chunks, optimizer, count)
        if own.hash_weights:
            hash_weights(chunks)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
