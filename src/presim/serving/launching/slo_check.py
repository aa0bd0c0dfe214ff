#!/usr/bin/env python3
"""Check a benchmark's result against plan.json beside this file: the SLO, and what was predicted.

python3 check_slo.py result.json            a result of `vllm bench serve --save-result --save-detailed`
python3 check_slo.py profile_export.jsonl   the records of `aiperf profile`

Exit code 0: the SLO is met. 1: it is missed. 2: the file cannot be judged. This file needs only Python.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

FILLING = 2.0  # residence times until the load of a server that was empty is steady


def percentile(values: list[float], level: float) -> float:
    """A percentile, between the two nearest values."""
    ordered = sorted(values)
    position = level / 100 * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def of_vllm(text: str) -> tuple[list[dict[str, float]], int]:
    """Requests of vLLM's result: start in s, TTFT, TPOT and E2EL in ms."""
    result: dict[str, Any] = json.loads(text)
    if "ttfts" not in result or "start_times" not in result:
        raise ValueError("it has no times of requests: run the benchmark with --save-detailed")
    columns = zip(result["start_times"], result["ttfts"], result["itls"], result["output_lens"])
    requests = []
    for start, ttft, gaps, tokens in columns:
        decoding = sum(gaps)
        tpot = decoding / (tokens - 1) if tokens > 1 else 0.0
        requests.append({"start": start, "ttft": ttft * 1e3, "tpot": tpot * 1e3, "e2el": (ttft + decoding) * 1e3})
    return requests, int(result.get("failed") or 0)


def of_aiperf(text: str) -> tuple[list[dict[str, float]], int]:
    """Requests of AIPerf's records."""
    requests, failed = [], 0
    for line in filter(str.strip, text.splitlines()):
        record = json.loads(line)
        metrics = record.get("metrics") or {}
        if record.get("error") or "time_to_first_token" not in metrics:
            failed += 1
            continue
        values = {name: float(metric["value"]) for name, metric in metrics.items() if "value" in metric}
        requests.append(
            {
                "start": record["metadata"]["request_start_ns"] / 1e9,
                "ttft": values["time_to_first_token"],
                "tpot": values.get("inter_token_latency", 0.0),
                "e2el": values["request_latency"],
            }
        )
    return requests, failed


def steady(requests: list[dict[str, float]]) -> list[dict[str, float]]:
    """Requests that were sent while the engines neither filled nor drained."""
    stay = percentile([request["e2el"] for request in requests], 50) / 1e3
    begin = min(request["start"] for request in requests) + FILLING * stay
    end = max(request["start"] for request in requests) - stay
    return [request for request in requests if begin <= request["start"] <= end]


def figure(requests: list[dict[str, float]], name: str, statistic: str) -> float:
    """The mean or a percentile of a latency, ms."""
    values = [request[name] for request in requests]
    return sum(values) / len(values) if statistic == "mean" else percentile(values, float(statistic[1:]))


def main(path: str) -> int:
    """Print measured, predicted and limit of each latency; return the exit code."""
    plan = json.loads(pathlib.Path(__file__).with_name("plan.json").read_text())
    try:
        text = pathlib.Path(path).read_text()
        requests, failed = of_aiperf(text) if path.endswith(".jsonl") else of_vllm(text)
        if not requests:
            raise ValueError(f"none of its requests ended, {failed} failed")
        slower = float(os.environ.get("SLOWER", "1"))
        requests = [{name: value / slower for name, value in request.items()} for request in requests]
        judged = steady(requests)
        if not judged:
            raise ValueError("no request was sent in a steady state: send more of them")
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{path} cannot be judged: {error}", file=sys.stderr)
        return 2
    print(f"{len(judged):,} requests in steady state of {len(requests):,}; {failed} failed")
    print(f"{'':>14}{'measured':>11}{'predicted':>11}{'limit':>9}")
    is_met = failed == 0
    shown: dict[tuple[str, str], float | None] = {(name, "mean"): None for name in ("ttft", "tpot", "e2el")}
    shown.update({(name, limit["statistic"]): limit["ms"] for name, limit in plan["slo"].items()})
    for (name, statistic), limit in shown.items():
        measured, predicted = figure(judged, name, statistic), plan["predicted"].get(f"{statistic}_{name}_ms")
        is_met = is_met and (limit is None or measured <= limit)
        cells = [f"{measured:11.1f}", " " * 11 if predicted is None else f"{predicted:11.1f}"]
        cells += [] if limit is None else [f"{limit:9.1f}"]
        print(f"{statistic + ' ' + name.upper():>14}{''.join(cells)}")
    print("The SLO is met." if is_met else "The SLO is missed.")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "result.json"))
