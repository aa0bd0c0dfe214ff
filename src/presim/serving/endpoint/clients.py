"""Simulated engines in step with wall-clock time, and the clients that wait for their tokens."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from presim.serving.endpoint.gauges import Gauges
from presim.serving.engines.engine import Fleet
from presim.serving.engines.live_engine import Emitted, LiveEngine
from presim.serving.fast import serving_state


class Clients:
    """Clients of simulated engines. Simulated time runs ``speed`` times as fast as wall-clock time."""

    def __init__(self, fleet: Fleet, speed: float = 1.0) -> None:
        self.engine, self.speed, self.gauges = LiveEngine(fleet), speed, Gauges()
        self.waiting: dict[int, asyncio.Queue[Emitted]] = {}
        self.begin = time.monotonic()
        self.changed = asyncio.Event()

    @property
    def now_ns(self) -> int:
        """Simulated time."""
        return int((time.monotonic() - self.begin) * self.speed * 1e9)

    async def run(self) -> None:
        """Advance simulated time with wall-clock time, and deliver tokens when they are due, until cancelled."""
        while True:
            self.changed.clear()
            for token in self.engine.advance(self.now_ns):
                self._deliver(token)
            following = self.engine.next_event_ns
            wait_s = None if following is None else max(following - self.now_ns, 0) / 1e9 / self.speed
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), wait_s)

    def _deliver(self, token: Emitted) -> None:
        self.gauges.emit(token, self.engine)
        if (queue := self.waiting.get(token.request)) is None:
            return
        wait_s = max(token.when_ns - self.now_ns, 0) / 1e9 / self.speed
        asyncio.get_running_loop().call_later(wait_s, queue.put_nowait, token)

    async def tokens(
        self, prompt: list[int], output: int, adapter: int = 0, grammar_ns: int = -1
    ) -> AsyncIterator[Emitted]:
        """The tokens of a request, as they come; one whose client leaves is aborted.

        Raises:
            InputError: the request is longer than the engines take.
        """
        request = self.engine.submit(prompt, output, self.now_ns, adapter=adapter, grammar_ns=grammar_ns)
        queue = self.waiting[request] = asyncio.Queue()
        self.changed.set()
        try:
            while True:
                token = await queue.get()
                yield token
                if token.is_last:
                    return
        finally:
            self.waiting.pop(request, None)
            self.engine.abort(request)
            self.changed.set()

    def used_pages(self) -> tuple[int, int]:
        """Pages of all engines that requests have, and all pages."""
        s, knobs = self.engine.state, self.engine.program.knobs
        pages = sum(knobs[replica * serving_state.KNOBS + serving_state.BLOCKS] - 1 for replica in range(len(s.n_free)))
        return pages - sum(s.n_free), pages
