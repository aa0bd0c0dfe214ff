"""DeepEP's events, which streams can wait for."""

from __future__ import annotations

from typing import Any

import torch


class EventHandle:
    """An event after the current stream's work so far."""

    def __init__(self) -> None:
        self.event = torch.cuda.Event()
        self.event.record()

    def current_stream_wait(self) -> None:
        """Make the current stream wait for the event."""
        torch.cuda.current_stream().wait_event(self.event)


class EventOverlap:
    """An event that a stream can wait for: the end of an exchange or of earlier work."""

    def __init__(self, event: Any = None, extra_tensors: Any = None) -> None:
        self.event = event
        self.extra_tensors = extra_tensors

    def current_stream_wait(self) -> None:
        """Make the current stream wait for the event."""
        if self.event is not None:
            self.event.wait() if hasattr(self.event, "wait") else self.event.current_stream_wait()

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *error: object) -> None:
        self.current_stream_wait()
