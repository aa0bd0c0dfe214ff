"""Steps of vLLM's engine core with given batches: what ``presim serve --steps captured`` captures.

Runs under a capture, as ``python -m presim.serving.engines.vllm_steps FOLDER``, with vLLM's own scheduler and model
runner, random weights and synchronous scheduling. ``FOLDER/asked.json`` has the model, the engine's arguments and the
batches (`presim.serving.steps.batches`). ``FOLDER/steps.json`` gets what the scheduler put into each step of the trace.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from presim.system.files import decode_json, read_bytes, write_file

_SETTLED = 2  # decoding steps before those that count: the first ones move rows of the batch
_MARKS = 8  # steps without any work, which show what a mark takes
_OUTPUT = 1 << 12  # tokens that a decoding request asks for: more than are generated


class Core:
    """vLLM's engine core, stepped by hand; each of its steps is three of the trace (`mark`)."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine  # which ends its core when it is collected
        self.core = engine.llm_engine.engine_core.engine_core
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # its steps are the trace's
        self.steps: list[dict[str, Any]] = []
        self.prompts: dict[str, int] = {}  # tokens by request
        self.output: Any = None  # of the scheduler, for the step that runs
        self._cut()

    def _cut(self) -> None:
        """Have each step end where the scheduler has decided, where tokens are sampled, and where it took them in."""
        scheduler = self.core.scheduler
        schedule, update = scheduler.schedule, scheduler.update_from_output

        def schedule_and_mark(*args: Any, **kwargs: Any) -> Any:
            self.output = schedule(*args, **kwargs)
            self.mark("schedule")
            return self.output

        def mark_and_update(*args: Any, **kwargs: Any) -> Any:
            self.mark("run")
            return update(*args, **kwargs)

        scheduler.schedule, scheduler.update_from_output = schedule_and_mark, mark_and_update

    def mark(self, part: str, chunks: list[list[int]] | None = None, batch: int = -1) -> None:
        """End a step of the trace: a part of an engine's step."""
        self.optimizer.step()  # without gradients: it does nothing else
        self.steps.append({"part": part, "chunks": chunks or [], "batch": batch})

    def step(self, batch: int = -1) -> None:
        """One step of the engine. ``batch``: the asked one; -1: on the way to one.

        Its chunks are [tokens, tokens before them, whether a token is sampled].
        """
        self.core.step_fn()
        tokens, cached = self.output.num_scheduled_tokens, self.output.scheduled_cached_reqs
        before = dict(zip(cached.req_ids, cached.num_computed_tokens))
        before |= {
            new_request.req_id: new_request.num_computed_tokens for new_request in self.output.scheduled_new_reqs
        }
        self.mark(
            "finish",
            [[count, before[name], int(before[name] + count >= self.prompts[name])] for name, count in tokens.items()],
            batch,
        )

    def add(self, tokens: int, output: int) -> str:
        """A request with a prompt of so many tokens."""
        from vllm import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        name = str(len(self.prompts))
        self.prompts[name] = tokens
        request = EngineCoreRequest(
            request_id=name,
            external_req_id=name,
            prompt_token_ids=[1 + position % 999 for position in range(tokens)],
            mm_features=None,
            sampling_params=SamplingParams(max_tokens=output, ignore_eos=True, detokenize=False),
            pooling_params=None,
            arrival_time=time.time(),
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self.core.add_request(*self.core.preprocess_add_request(request))
        return name

    def serve(self, number: int, batch: dict[str, Any], repeats: int) -> None:
        """Bring the decodes of a batch to their contexts, then step with its prompts beside them."""
        decodes = [self.add(context, _OUTPUT) for context in batch["decodes"]]
        requests = self.core.scheduler.requests
        self.mark("between")
        while any(requests[name].num_computed_tokens < self.prompts[name] for name in decodes):
            self.step()
        for _ in range(_SETTLED if decodes else 0):
            self.step()
        for _ in range(repeats):
            if batch["prefills"]:
                for tokens in batch["prefills"]:
                    self.add(tokens, 1)
                self.mark("between")
            self.step(number)
        self.core.abort_requests(decodes)
        self.step()  # in which the runner forgets its requests


def main(folder: Path) -> None:
    """Start the engine, step through all batches, and write what was in each step."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_USE_DEEP_GEMM", "0")  # compiles its kernels for the GPU when they are first called
    from vllm import LLM

    instructions = decode_json(read_bytes(folder / "asked.json", "capture the steps again"))
    write_file(folder / "config.json", json.dumps(instructions["config"]).encode())
    core = Core(LLM(model=str(folder), **instructions["arguments"], **instructions["gpu_arguments"]))
    gc.collect()
    gc.freeze()  # as vLLM does in the engine's own process
    for _ in range(_MARKS):
        core.mark("nothing")
    for number, batch in enumerate(instructions["batches"]):
        core.serve(number, batch, instructions["repeats"])
    if not int(os.environ.get("RANK", "0")):
        blocks = core.core.vllm_config.cache_config.num_gpu_blocks
        write_file(folder / "steps.json", json.dumps({"blocks": blocks, "steps": core.steps}).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
