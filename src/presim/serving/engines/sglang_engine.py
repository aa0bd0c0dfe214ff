"""SGLang's own scheduler, stepped as by its event loops, with a model that returns after simulated time.

Runs in a separate process, started by `presim.serving.engines.real`.
"""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from presim.serving.engines.engine import Limits, StepTimes
from presim.serving.engines.real import read_input, write_result
from presim.serving.engines.sglang_scheduler import request, scheduler
from presim.serving.engines.vllm_scheduler import token_of
from presim.serving.fast import step_cost
from presim.serving.workloads.workload import Ints, Workload


class SGLangEngine:
    """SGLang's `event_loop_overlap`, or `event_loop_normal`, in simulated time."""

    def __init__(
        self,
        limits: Limits,
        times: StepTimes,
        folder: Path,
        input_ns: int = 0,
        output_ns: int = 0,
        input_token_ns: int = 0,
    ) -> None:
        from sglang.srt.managers.scheduler_components.recv_skipper import SchedulerRecvSkipper

        self.limits, self.times, self.scheduler = limits, times, scheduler(limits, folder)
        self.skipper = SchedulerRecvSkipper.maybe_create()
        self.input_ns, self.output_ns, self.input_token_ns = input_ns, output_ns, input_token_ns
        self.ends: deque[int] = deque()  # ns, of the batches whose results are to be processed
        self.device_free = 0
        self.steps: list[dict[int, int]] = []
        self.free_pages: list[int] = []
        self.prefill_log, self.decode_log = (
            np.log2(table).ravel().tolist() for table in (times.prefill_ns, times.decode_ns)
        )

    def serve(self, workload: Workload) -> tuple[Ints, Ints]:
        """Serve a workload to its end; returns when each request's first and last token reached its client."""
        self.workload = workload
        self.first, self.last = (np.full(len(workload), -1, np.int64) for _ in range(2))
        self.arrival, self.arrived = workload.arrival_ns + self.input_ns + workload.prompt * self.input_token_ns, 0
        now = 0
        while (self.last < 0).any():
            now = self._step(now)
        return self.first, self.last

    def _step(self, now: int) -> int:
        """An iteration of the event loop."""
        of = self.scheduler
        if self.skipper is None or self.skipper.handle(of.last_batch):
            self._receive(now)
        plan = of.get_next_batch_to_run(running_batch=of.running_batch, last_batch=of.last_batch)
        of.running_batch, batch = plan.running_batch, plan.batch_to_run
        if batch:
            of.forward_ct += 1
            batch.forward_iter = of.forward_ct
            now, end = self._launch(batch, now)
            self.ends.append(end)
            of.result_queue.append((batch.copy(), None))
        if of.result_queue and (of.last_batch or not self.limits.async_scheduling):
            now = self._process(now)
        elif not batch and self.arrived < len(self.workload) and not of.waiting_queue:
            now = max(now, int(self.arrival[self.arrived]))
        of.last_batch = batch
        return now

    def _receive(self, now: int) -> None:
        while self.arrived < len(self.workload) and self.arrival[self.arrived] <= now:
            self.scheduler._add_request_to_queue(request(self.workload, self.arrived))
            self.arrived += 1

    def _launch(self, batch: Any, now: int) -> tuple[int, int]:
        """The batch is on the device; when the host is done with launching it, and the device with computing it."""
        prompts = batch.forward_mode.is_extend()
        lengths = batch.seq_lens_cpu.tolist()
        tokens = [batch_request.extend_len for batch_request in batch.reqs] if prompts else [1] * len(lengths)
        self.steps.append(
            {int(batch_request.rid): count for batch_request, count in zip(batch.reqs, tokens, strict=True)}
        )
        self.free_pages.append(self._free())
        now += int(self.times.host_ns + self.times.host_seq_ns * len(tokens))
        device, launch = self._device_ns(tokens, lengths)
        end = self.device_free = max(max(now, self.device_free) + device, now + launch)
        return now + launch, end

    def _free(self) -> int:
        """Pages that no request uses, of which some hold cached prefixes."""
        cached = self.scheduler.tree_cache.evictable_size()
        return int(self.scheduler.token_to_kv_pool_allocator.available_size() + cached) // self.limits.block_size

    def _device_ns(self, tokens: list[int], lengths: list[int]) -> tuple[int, int]:
        """As `presim.serving.fast.step_cost.device_ns` and `launch_ns`."""
        chunks = [(new, length) for new, length in zip(tokens, lengths, strict=True) if new > 1]
        decodes = [length for new, length in zip(tokens, lengths, strict=True) if new == 1]
        attention = 0.0
        for new, length in chunks:
            attention += step_cost.between(self.prefill_log, 0, float(new), float(length))
        if decodes:
            attention += step_cost.between(self.decode_log, 0, float(len(decodes)), sum(decodes) / len(decodes))
        linear = float(self.times.token_ns[sum(tokens)]) + float(self.times.head_ns[len(tokens)])
        launches = self.times.prompt_launch_ns if chunks else self.times.decode_launch_ns
        return int(linear + attention), 0 if launches is None else int(launches[sum(tokens)])

    def _process(self, now: int) -> int:
        """The oldest batch is back: SGLang's own processor takes its tokens."""
        import torch
        from sglang.srt.managers.utils import GenerationBatchResult

        batch, _ = self.scheduler.result_queue.popleft()
        now = max(now, self.ends.popleft())
        places = [len(batch_request.origin_input_ids) + len(batch_request.output_ids) for batch_request in batch.reqs]
        tokens = [
            token_of(self.workload, int(batch_request.rid), position)
            for batch_request, position in zip(batch.reqs, places, strict=True)
        ]
        result = GenerationBatchResult(next_token_ids=torch.tensor(tokens), can_run_cuda_graph=False)
        processor = self.scheduler.batch_result_processor
        if batch.forward_mode.is_decode():
            processor.process_batch_result_decode(batch, result)
        else:
            processor.process_batch_result_prefill(batch, result)
        now += int(self.times.back_ns + self.times.back_seq_ns * len(tokens))
        for batch_request in batch.reqs:
            item = int(batch_request.rid)
            if self.first[item] < 0 and batch_request.output_ids:
                self.first[item] = now + self.output_ns
            if self.last[item] < 0 and batch_request.finished():
                self.last[item] = now + self.output_ns
        return now


def main(folder: Path) -> None:
    """Serve the input written by `presim.serving.engines.real`."""
    workload, limits, times, *client_ns = read_input(folder)
    engine = SGLangEngine(limits, times, folder, *client_ns)
    first, last = engine.serve(workload)
    write_result(folder, first, last, len(engine.steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
