"""vLLM's own scheduler, stepped as in its engine core, with an executor that returns after simulated time.

Runs in a separate process, started by `presim.serving.engines.real`.
"""

from __future__ import annotations

import bisect
import dataclasses
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from presim.serving.engines.engine import Limits, StepTimes
from presim.serving.engines.real import read_input, write_result
from presim.serving.engines.vllm_scheduler import compiled, request, scheduler, token_of
from presim.serving.fast import step_cost
from presim.serving.fast.output import count_accepted
from presim.serving.fast.stage_batches import EMPTY_STEP_NS
from presim.serving.workloads.workload import Ints, Workload


@dataclasses.dataclass
class _Batch:
    """A step in flight."""

    output: Any
    end: int  # ns
    samples: dict[str, int] = dataclasses.field(default_factory=dict)
    rows: int = 0  # of the mask of its grammars
    padded: set[str] = dataclasses.field(default_factory=set)


class VllmEngine:
    """vLLM's `EngineCore.step` and `step_with_batch_queue` in simulated time, called as by its busy loop."""

    def __init__(
        self,
        limits: Limits,
        times: StepTimes,
        folder: Path,
        input_ns: int = 0,
        output_ns: int = 0,
        input_token_ns: int = 0,
    ) -> None:
        self.limits, self.times, self.scheduler = limits, times, scheduler(limits, folder)
        self.input_ns, self.output_ns, self.input_token_ns = input_ns, output_ns, input_token_ns
        self.queue: deque[_Batch] = deque()
        self.grammars: list[tuple[int, Any]] = []  # when they are compiled, and whose they are
        self.stage_free = [0] * limits.pipeline_parallel_size  # ns
        self.sampled_at: dict[str, int] = {}  # ns at which a request's newest token is sampled
        self.steps: list[dict[int, int]] = []
        self.free_blocks: list[int] = []
        self.prefill_log, self.decode_log = (
            np.log2(table).ravel().tolist() for table in (times.prefill_ns, times.decode_ns)
        )

    def serve(self, workload: Workload) -> tuple[Ints, Ints]:
        """Serve a workload to its end; returns when each request's first and last token reached its client."""
        self.workload = workload
        self.first, self.last = (np.full(len(workload), -1, np.int64) for _ in range(2))
        now, next_item = 0, 0
        arrival = workload.arrival_ns + self.input_ns + workload.prompt * self.input_token_ns
        while next_item < len(workload) or self.scheduler.has_requests() or self.queue:
            soonest = [int(arrival[next_item])] if next_item < len(workload) else []
            soonest += [self.grammars[0][0]] if self.grammars else []
            if not self.queue and soonest and (self.idle or not self.scheduler.has_requests()):
                now = max(now, min(soonest))
            while next_item < len(workload) and arrival[next_item] <= now:
                self._add(next_item, int(arrival[next_item]))
                next_item += 1
            while self.grammars and self.grammars[0][0] <= now:
                compiled(self.grammars.pop(0)[1])
            now = self._step(now)
        return self.first, self.last

    idle = False  # nothing could be scheduled

    def _add(self, item: int, arrival_ns: int) -> None:
        vllm_request = request(self.workload, item, self.limits)
        self.scheduler.add_request(vllm_request)
        if self.workload.grammar_ns[item] > 0:
            bisect.insort(
                self.grammars,
                (arrival_ns + int(self.workload.grammar_ns[item]), vllm_request),
                key=lambda entry: entry[0],
            )

    def _step(self, now: int) -> int:
        waits = None
        self.idle = False
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            if output.total_num_scheduled_tokens > 0:
                now, batch = self._launch(output, now)
                if output.pending_structured_output_tokens:
                    waits = batch
                else:
                    now = self._mask(batch, now)
                    self.queue.append(batch)
                    if len(self.queue) < self.limits.depth:
                        return now
            elif self.limits.pipeline_parallel_size > 1:
                return self._step_without_tokens(output, now)
            else:
                self.idle = not self.queue
        if self.queue:
            now = self._take(self.queue.popleft(), now, waits)
        return now

    def _step_without_tokens(self, output: Any, now: int) -> int:
        """An empty batch takes a place in flight, and comes back behind the others; the busy loop sleeps."""
        self.queue.append(_Batch(output, max(now, self.queue[-1].end) if self.queue else now))
        if len(self.queue) == self.limits.depth or not self.scheduler.has_requests():
            now = self._take(self.queue.popleft(), now, None)
        return now + (EMPTY_STEP_NS if self.scheduler.has_requests() else 0)

    def _launch(self, output: Any, now: int) -> tuple[int, _Batch]:
        times = self.times
        now += int(times.host_ns + times.host_seq_ns * len(output.num_scheduled_tokens))
        samples = self._samples(output)
        device, launch = self._device_ns(output, samples)
        if self.limits.pipeline_parallel_size > 1:
            end = self._through_stages(samples, now, max(device, launch))
        else:
            end = self.stage_free[0] = max(max(now, self.stage_free[0]) + device, now + launch)
            now += launch
        self.steps.append({int(key): count for key, count in output.num_scheduled_tokens.items()})
        self.free_blocks.append(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())
        rows = sum(count for name, count in samples.items() if self.workload.grammar_ns[int(name)] >= 0)
        return now, _Batch(output, end, samples, rows, self._padded(output))

    def _through_stages(self, samples: dict[str, int], ready: int, stage_ns: int) -> int:
        """As `presim.serving.fast.stage_batches.through_stages`; returns the end."""
        end = ready
        for name, count in samples.items():
            if self.scheduler.requests[name].num_output_placeholders > count:
                end = max(end, self.sampled_at[name])
        for stage, free in enumerate(self.stage_free):
            end = self.stage_free[stage] = max(end, free) + stage_ns
        self.sampled_at |= dict.fromkeys(samples, end)
        return end

    def _mask(self, batch: _Batch, now: int) -> int:
        """The mask of a batch's grammars is made; sampling waits for it."""
        if batch.rows:
            now += int(self.times.mask_ns * batch.rows)
            sampling = int(float(self.times.head_ns[self._rows(batch.output, batch.samples)]))
            batch.end = self.stage_free[0] = max(batch.end, now + sampling)
        return now

    def _take(self, batch: _Batch, now: int, waits: _Batch | None) -> int:
        """A batch is back. The one that waits for its tokens is sampled then."""
        now = max(now, batch.end)
        self.scheduler.update_from_output(batch.output, self._result(batch))
        if not batch.output.num_scheduled_tokens:
            return now
        now += int(self.times.back_ns + self.times.back_seq_ns * len(batch.output.num_scheduled_tokens))
        if self.limits.draft_tokens and not self.limits.async_scheduling:
            self._draft(batch)
        if waits is not None:
            now = self._mask(waits, now)
            self.queue.append(waits)
        for name in batch.samples:
            item = int(name)
            self.first[item] = now + self.output_ns if self.first[item] < 0 else self.first[item]
            if self.last[item] < 0 and name not in self.scheduler.requests:
                self.last[item] = now + self.output_ns
        return now

    def _draft(self, batch: _Batch) -> None:
        from vllm.v1.outputs import DraftTokenIds

        names = list(batch.output.num_scheduled_tokens)
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[0] * self.limits.draft_tokens for _ in names]))

    def _rows(self, output: Any, samples: dict[str, int]) -> int:
        return sum(max(samples.get(name, 0), 1) for name in output.num_scheduled_tokens)

    def _device_ns(self, output: Any, samples: dict[str, int]) -> tuple[int, int]:
        """As `presim.serving.fast.step_cost.device_ns` and `launch_ns`."""
        decodes = context = adapted = prompt = 0
        attention = 0.0
        for name, new in output.num_scheduled_tokens.items():
            computed = self.scheduler.requests[name].num_computed_tokens
            adapted += new if self.workload.adapter[int(name)] else 0
            if new <= 1 + self.limits.draft_tokens:
                decodes += 1
                context += computed
            else:
                prompt += new
                attention += step_cost.between(self.prefill_log, 0, float(new), float(computed))
        if decodes:
            attention += step_cost.between(self.decode_log, 0, float(decodes), context / decodes)
        times, rows, tokens = self.times, self._rows(output, samples), output.total_num_scheduled_tokens
        linear = float(times.token_ns[tokens]) + float(times.head_ns[rows])
        device = int(linear + attention + (0.0 if times.lora_ns is None else float(times.lora_ns[adapted])))
        launches = times.prompt_launch_ns if prompt else times.decode_launch_ns
        return device, 0 if launches is None else int(launches[tokens])

    def _samples(self, output: Any) -> dict[str, int]:
        """Tokens that a step samples of each request: one, and those that verify drafts."""
        drafted = output.scheduled_spec_decode_tokens
        return {
            name: 1 + len(drafted.get(name, ()))
            for name in output.num_scheduled_tokens
            if not self.scheduler.requests[name].is_prefill_chunk
        }

    def _padded(self, output: Any) -> set[str]:
        """Requests that were admitted with padding in the place of drafts."""
        return {
            new_request.req_id
            for new_request in output.scheduled_new_reqs
            if new_request.req_id in output.scheduled_spec_decode_tokens
        } | {
            name for name in output.scheduled_cached_reqs.resumed_req_ids if name in output.scheduled_spec_decode_tokens
        }

    def _result(self, batch: _Batch) -> Any:
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(batch.output.num_scheduled_tokens)
        tokens: list[list[int]] = []
        for name in names:
            request_state = self.scheduler.requests.get(name)
            num_tokens = request_state.num_tokens if request_state is not None else 0
            drafted = 0 if name in batch.padded else batch.samples.get(name, 1) - 1
            num_accepted = count_accepted(int(name), num_tokens, drafted, round(self.limits.acceptance * 1e6))
            sampled = 1 + num_accepted if name in batch.samples else 0
            tokens.append([token_of(self.workload, int(name), num_tokens + offset) for offset in range(sampled)])
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )


def main(folder: Path) -> None:
    """Serve the input written by `presim.serving.engines.real`."""
    workload, limits, times, *client_ns = read_input(folder)
    engine = VllmEngine(limits, times, folder, *client_ns)
    first, last = engine.serve(workload)
    write_result(folder, first, last, len(engine.steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
