"""Generate responses on the engines of a pool: their own schedulers in simulated time, between changes of weights."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.post_training.rl_job import RlJob
from presim.post_training.turns import split
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.engine import Fleet
from presim.serving.engines.simulate_fleet import FleetRun, Served
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import Workload, make

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_PAUSE_STEPS = 2048  # of each engine, between two looks at whether a rollout is interrupted
_ROUNDING = 1e-9  # of a share of steps


@dataclasses.dataclass(frozen=True, eq=False)
class Responses:
    """Responses that are generated or remain to be: one entry of every column each."""

    group: Ints  # number of the prompt in the whole run
    prompt: Ints  # tokens
    length: Ints  # tokens that the response will have
    generated: Ints  # tokens that it has

    def part(self, selected: NDArray[np.bool_]) -> Responses:
        """Some of them."""
        return Responses(*(getattr(self, field.name)[selected] for field in dataclasses.fields(self)))

    def with_added(self, added: Responses) -> Responses:
        """Both."""
        names = [field.name for field in dataclasses.fields(self)]
        return Responses(*(np.concatenate([getattr(self, name), getattr(added, name)]) for name in names))

    def __len__(self) -> int:
        return len(self.group)


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """What the engines do from one change of weights on; seconds from its start.

    Nothing is known of what is after `until_s`, which no question may be about.
    """

    responses: Responses
    end_s: Floats  # by response; infinite: after `until_s`
    served: Served
    ranks: int  # of all engines: an engine has one for each part of its data parallelism
    tokens: Ints  # of each response, that it has generated until its last time
    turns: int = 1  # requests of each response, one after the other
    until_s: float = np.inf

    @property
    def rank_end_s(self) -> Floats:
        """When each rank of the engines has generated its last token."""
        end_times = np.zeros(self.ranks)
        last_s = np.where(self.served.finished, self.served.last / 1e9, np.inf)
        np.maximum.at(end_times, self.served.replica, last_s)
        return end_times

    @property
    def tool_wait_s(self) -> float:
        """Seconds in which ranks of the engines have nothing to generate because tools answer; summed over ranks.

        Between two turns alone: without them, an engine's steps follow each other until it is done.
        """
        if self.turns == 1:
            return 0.0
        steps = self.served.steps
        columns = (serving_state.LOG_REPLICA, serving_state.LOG_START, serving_state.LOG_END)
        replicas, start_ns, end_ns = (steps[:, column] for column in columns)
        wait_ns = 0
        for replica in np.unique(replicas):
            starts = start_ns[replicas == replica]
            order = np.argsort(starts, kind="stable")
            end_times = np.maximum.accumulate(np.concatenate([[0], end_ns[replicas == replica][order][:-1]]))
            wait_ns += int(np.maximum(starts[order] - end_times, 0).sum())
        return wait_ns / 1e9

    def generated_at(self, cut_s: float) -> Ints:
        """Tokens of each response at a moment: an engine's step gives each of its sequences one."""
        served, responses = self.served, self.responses
        cut_ns = round(cut_s * 1e9)
        if self.turns > 1:  # never interrupted
            return responses.length.copy()
        has_begun = (served.first >= 0) & (served.first <= cut_ns)
        tokens = np.where(has_begun & (served.last <= cut_ns), self.tokens, 0)
        steps_by_replica = _step_ends(served)
        for index in np.flatnonzero(has_begun & (served.last > cut_ns)).tolist():
            end_times = steps_by_replica[int(served.replica[index])]
            later_tokens = int(self.tokens[index]) - 1
            first, now, last = np.searchsorted(end_times, (served.first[index], cut_ns, served.last[index]))
            share = (now - first) / max(last - first, 1)
            tokens[index] = min(1 + int(share * later_tokens + _ROUNDING), later_tokens)
        return np.asarray(responses.generated + tokens)

    @property
    def preemptions(self) -> int:
        """Requests that lost their cache blocks to others."""
        return int(self.served.preemptions.sum())


def _step_ends(served: Served) -> dict[int, Ints]:
    replicas, end_times = served.steps[:, serving_state.LOG_REPLICA], served.steps[:, serving_state.LOG_END]
    return {int(replica): np.sort(end_times[replicas == replica]) for replica in np.unique(replicas)}


class OpenRollout:
    """A rollout that is simulated until it is known when it is interrupted; with no pauses, to its end."""

    def __init__(self, responses: Responses, job: RlJob, seed: int, *, pauses: bool) -> None:
        self.responses, self.job = responses, job
        workload, fleet = _requests(responses, job, seed)
        self._ranks = len(fleet.replicas)
        self._run = FleetRun(workload, fleet, pause_steps=_PAUSE_STEPS * self._ranks if pauses else None)

    @property
    def until_s(self) -> float:
        """The time until which all is known."""
        return np.inf if self._run.is_done else self._run.now_ns / 1e9

    @property
    def end_s(self) -> Floats:
        """When each response ends; infinite: not until `until_s`."""
        last_s = np.where(self._run.column("status") == serving_state.FINISHED, self._run.column("last") / 1e9, np.inf)
        return np.asarray(last_s[self.job.batch.turns.count - 1 :: self.job.batch.turns.count])

    def advance(self) -> None:
        """Simulate until the next pause.

        Raises:
            InputError: an engine takes no request of such a length.
        """
        self._run.advance()
        is_refused = self._run.column("status") == serving_state.REFUSED
        if self._run.is_done:
            is_refused = self._run.column("status") != serving_state.FINISHED
        if is_refused.any():
            responses, index = self.responses, int(np.flatnonzero(is_refused)[0]) // self.job.batch.turns.count
            raise InputError(
                f"an engine refuses {int(is_refused.sum()):,} of {len(responses):,} responses, first one of "
                f"{int(responses.prompt[index]):,} prompt and {int(responses.length[index]):,} response tokens: its "
                f"KV cache holds {self.job.engine.limits.kv_tokens:,}; use a larger --rollout-tp or "
                "--gpu-memory-utilization"
            )

    def window(self) -> Window:
        """All that is known; once."""
        count = self.job.batch.turns.count
        remaining = self.responses.length - self.responses.generated
        tokens = remaining
        if not self._run.is_done:
            begun = self._run.column("tokens") - self._run.workload.prompt
            tokens = np.where(np.isinf(self.end_s), begun, remaining)
        return Window(self.responses, self.end_s, self._run.served(), self._ranks, tokens, count, self.until_s)


def generate(responses: Responses, job: RlJob, seed: int) -> Window:
    """Simulate the engines from now until all responses are generated.

    Raises:
        InputError: an engine takes no request of such a length.
    """
    rollout = OpenRollout(responses, job, seed, pauses=True)  # for signals, which wait for the compiled loop
    while np.isfinite(rollout.until_s):
        rollout.advance()
    return rollout.window()


def _requests(responses: Responses, job: RlJob, seed: int) -> tuple[Workload, Fleet]:
    """Requests for the engines, and these.

    All requests are sent at once. A response that was interrupted is sent with the tokens that it has, which are
    computed again: new weights invalidate the cache. Responses to one prompt share its cached tokens on an engine.
    """
    engine, turns = job.engine, job.batch.turns
    block, count = engine.limits.block_size, turns.count
    parts = split(responses.length - responses.generated, count)  # [response, turn]
    own_prompt = responses.prompt - turns.read_tokens
    before = np.cumsum(parts, axis=1) - parts + turns.tool_tokens * np.arange(count)
    number = np.arange(len(responses) * count)
    is_first = number % count == 0
    is_consecutive = job.assignment == "consecutive" and count == 1
    fleet = Deployment(engine, job.replicas, "round-robin" if is_consecutive else "least-loaded").fleet(seed=seed)
    order = consecutive_order(len(number), len(fleet.replicas)) if is_consecutive else np.zeros_like(number)
    shared_blocks = np.repeat(own_prompt // block, count)  # of the prompt: the same for all responses to it
    first = np.concatenate([[0], np.cumsum(shared_blocks)]).astype(np.int64)
    within = np.arange(first[-1]) - np.repeat(first[:-1], shared_blocks)
    most_blocks = int(shared_blocks.max(initial=0)) + 1
    workload = make(
        f"{len(responses)} responses",
        order,  # ns, which decide between engines and are too short to count
        ((own_prompt + responses.generated)[:, None] + before).ravel(),
        parts.ravel(),
        stream=number // count,
        parent=np.where(is_first, -1, number - 1),
        delay_ns=turns.delays_ns(len(responses), seed),
        delay_workers=turns.workers,
        segment_first=first,
        segments=np.repeat(np.repeat(responses.group, count), shared_blocks) * most_blocks + within,
        segment_tokens=block,
        seed=seed,
        origin="presim.post_training.rollout",
    )
    return workload, fleet


def consecutive_order(responses: int, engines: int) -> Ints:
    """The place of each response in the order in which a round-robin over engines gives each its part of the batch."""
    starts = [part[0] for part in np.array_split(np.arange(responses), engines) if len(part)]
    engine = np.searchsorted(starts, np.arange(responses), side="right") - 1
    return (np.arange(responses) - np.array(starts, np.int64)[engine]) * engines + engine
