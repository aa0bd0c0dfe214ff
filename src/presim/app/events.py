"""Server-sent events: the project as JSON whenever it has changed, so that a page need not ask again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from starlette.concurrency import run_in_threadpool

from presim.app.answers import Overview

_OFTEN_S, _SELDOM_S = 0.5, 2.0  # between looks at the folder, while jobs run and else
_ALIVE_EVERY = 10  # looks without a change, after which a comment keeps the connection


async def changes(
    overview: Callable[[], Overview], pause: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> AsyncIterator[bytes]:
    """Events of a project without end; the first at once."""
    last, quiet_looks = b"", 0
    while True:
        content = await run_in_threadpool(overview)
        data = msgspec.json.encode(content)
        quiet_looks = 0 if data != last else quiet_looks + 1
        if data != last:
            yield b"data: " + data + b"\n\n"
        elif quiet_looks % _ALIVE_EVERY == 0:
            yield b": alive\n\n"
        last = data
        await pause(_OFTEN_S if any(job.state in ("queued", "running") for job in content.jobs) else _SELDOM_S)
