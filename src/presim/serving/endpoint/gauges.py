"""Counts and times of the endpoint's requests, as vLLM's ``/metrics`` shows them (0.33, v1/metrics/loggers.py)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from presim.serving.engines.live_engine import Emitted, LiveEngine

if TYPE_CHECKING:
    from presim.serving.endpoint.clients import Clients

_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_REQUEST_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)


@dataclasses.dataclass
class Histogram:
    """Times in seconds, counted up to bounds."""

    bounds: tuple[float, ...]
    counts: list[int] = dataclasses.field(default_factory=list)
    total_s: float = 0.0
    count: int = 0

    def observe(self, seconds: float) -> None:
        """Count a time."""
        self.counts = self.counts or [0] * len(self.bounds)
        self.total_s += seconds
        self.count += 1
        for bucket, bound in enumerate(self.bounds):
            self.counts[bucket] += seconds <= bound

    def lines(self, name: str, labels: str) -> list[str]:
        """In Prometheus' text."""
        counts = self.counts or [0] * len(self.bounds)
        bucket_lines = [
            f'{name}_bucket{{le="{bound:g}",{labels}}} {count}' for bound, count in zip(self.bounds, counts)
        ]
        bucket_lines += [f'{name}_bucket{{le="+Inf",{labels}}} {self.count}', f"{name}_count{{{labels}}} {self.count}"]
        return [f"# TYPE {name} histogram", *bucket_lines, f"{name}_sum{{{labels}}} {self.total_s:g}"]


class Gauges:
    """What has happened to requests so far, in simulated time."""

    def __init__(self) -> None:
        self.first, self.between, self.whole = Histogram(_TTFT_S), Histogram(_TOKEN_S), Histogram(_REQUEST_S)
        self.prompt_tokens = self.output_tokens = self.finished = self.found_tokens = 0
        self._last_ns: dict[int, int] = {}

    def emit(self, token: Emitted, engine: LiveEngine) -> None:
        """A token reached its client."""
        request, sent_ns = token.request, engine.state.sent[token.request]
        self.output_tokens += 1
        before_ns = self._last_ns.get(request)
        if before_ns is None:
            self.prompt_tokens += engine.program.prompt[request]
            self.found_tokens += engine.state.hits[request]
            self.first.observe((token.when_ns - sent_ns) / 1e9)
        else:
            self.between.observe((token.when_ns - before_ns) / 1e9)
        self._last_ns[request] = token.when_ns
        if token.is_last:
            self.finished += 1
            self.whole.observe((token.when_ns - sent_ns) / 1e9)
            del self._last_ns[request]

    def text(self, clients: Clients, model: str) -> str:
        """Prometheus' text."""
        labels = f'engine="0",model_name="{model}"'
        s = clients.engine.state
        used, pages = clients.used_pages()
        values = {
            "vllm:num_requests_running": ("gauge", sum(s.n_running)),
            "vllm:num_requests_waiting": ("gauge", sum(s.waiting)),
            "vllm:kv_cache_usage_perc": ("gauge", used / max(pages, 1)),
            "vllm:prefix_cache_queries_total": ("counter", self.prompt_tokens),
            "vllm:prefix_cache_hits_total": ("counter", self.found_tokens),
            "vllm:num_preemptions_total": ("counter", sum(s.preemptions)),
            "vllm:prompt_tokens_total": ("counter", self.prompt_tokens),
            "vllm:generation_tokens_total": ("counter", self.output_tokens),
        }
        lines = []
        for name, (kind, value) in values.items():
            lines += [f"# TYPE {name.removesuffix('_total')} {kind}", f"{name}{{{labels}}} {value:g}"]
        lines += ["# TYPE vllm:request_success counter"]
        lines += [f'vllm:request_success_total{{{labels},finished_reason="length"}} {self.finished}']
        lines += self.first.lines("vllm:time_to_first_token_seconds", labels)
        lines += self.between.lines("vllm:inter_token_latency_seconds", labels)
        lines += self.whole.lines("vllm:e2e_request_latency_seconds", labels)
        return "\n".join(lines) + "\n"
