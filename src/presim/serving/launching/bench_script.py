"""The benchmark of a deployment: its workload as a file, and a script that sends it with vLLM's bench or AIPerf."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from presim.serving.answer import metrics
from presim.serving.answer.metrics import Slo
from presim.serving.deployments.capacity import OfferedLoad, Trial, judge
from presim.serving.deployments.deployment import Deployment
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.launching.launch_set import ROUTER_PORT, LaunchSet
from presim.serving.workloads.workload import Workload

BLOCK_TOKENS = 512  # of a hash id: AIPerf's default for Mooncake's traces
_LONGEST_S = 600.0  # of arrivals, unless a steady state needs more
_FEWEST = 200  # requests in steady state
_MOST = 50_000  # requests
WORKLOAD, RESULT = "workload.jsonl", "result.json"


@dataclasses.dataclass(frozen=True, eq=False)
class Benchmark:
    """A workload, and what the deployment is predicted to do with it."""

    workload: Workload
    rate: float  # requests/s
    steady: Trial
    figures: dict[str, Any]  # of all requests, keys as in vllm bench serve


def benchmark(deployment: Deployment, load: OfferedLoad, rate: float, in_flight: float) -> Benchmark:
    """The first requests of the load at a rate, as many as a steady state needs or arrive within ten minutes."""
    steady = round(4 * in_flight + _FEWEST)
    count = min(max(steady, min(round(rate * _LONGEST_S), len(load.workload))), _MOST)
    workload = (load if count <= len(load.workload) else load.redrawn(0, count)).workload.first(count).scaled(rate)
    served = simulate(workload, deployment.fleet())
    return Benchmark(workload, rate, judge(served, load.slo, rate), metrics.bench(served, load.slo))


def rows(workload: Workload) -> bytes:
    """The requests in the form of Mooncake's traces, which vLLM's bench and AIPerf replay: times in ms."""
    block = workload.segment_tokens or BLOCK_TOKENS
    ids: dict[tuple[str, int, int], int] = {}
    lines = []
    for request in range(len(workload)):
        first, last = workload.segment_first[request : request + 2]
        keys = [("shared", int(segment), 0) for segment in workload.segments[first:last]]
        remaining = -(-(int(workload.prompt[request]) - block * len(keys)) // block)
        keys += [("own", int(workload.stream[request]), index) for index in range(max(remaining, 0))]
        row = {
            "timestamp": int(workload.arrival_ns[request] // 1_000_000),
            "input_length": int(workload.prompt[request]),
            "output_length": int(workload.output[request]),
            "hash_ids": [ids.setdefault(key, len(ids)) for key in keys],
        }
        lines.append(json.dumps(row))
    return ("\n".join(lines) + "\n").encode()


def plan_file(bench: Benchmark, slo: Slo, name: str) -> bytes:
    """What `check_slo.py` compares a result with."""
    limits = {metric: {"ms": bound, "statistic": slo.statistics[metric]} for metric, bound in slo.bounds.items()}
    content = {
        "deployment": name,
        "rate": bench.rate,
        "slo": limits,
        "predicted": bench.steady.figures,
        "predicted_of_all_requests": bench.figures,
    }
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def bench_script(launch_set: LaunchSet, bench: Benchmark) -> str:
    """Sends the workload, at the times that it says, and checks the SLO."""
    block = bench.workload.segment_tokens or BLOCK_TOKENS
    source = launch_set.source
    tokenizer = f"${{TOKENIZER:?{source.problem}}}" if source.problem else f"${{TOKENIZER:-{source.name}}}"
    return f"""#!/bin/sh
# {len(bench.workload):,} requests, {bench.rate:.4g} a second, to URL: sh bench.sh with vLLM's bench, sh bench.sh aiperf
# with AIPerf. TOKENIZER: a repository or folder with the model's tokenizer. SLOWER: as rehearse.sh was told.
# The end says whether the SLO is met.
set -eu
cd "$(dirname "$0")"
URL=${{URL:-http://127.0.0.1:{ROUTER_PORT}}}
TOKENIZER={tokenizer}
case "${{1:-vllm}}" in
vllm)
  # The same tokens in each run, as they are drawn by Python's hash.
  PYTHONHASHSEED=0 vllm bench serve --backend openai --base-url "$URL" --endpoint /v1/completions \\
    --tokenizer "$TOKENIZER" --dataset-name timed_trace --dataset-path {WORKLOAD} \\
    --timed-trace-sec-multiplier "${{SLOWER:-1}}e-3" --timed-trace-chunk-hash-size {block} \\
    --num-prompts {len(bench.workload)} --temperature 0 \\
    --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,99 \\
    --save-result --save-detailed --result-dir . --result-filename {RESULT}
  RECORDS={RESULT}
  ;;
aiperf)
  NAME=$(curl -sf "$URL/v1/models" | python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])')
  aiperf profile --model "$NAME" --url "$URL" --endpoint-type completions --streaming --tokenizer "$TOKENIZER" \\
    --input-file {WORKLOAD} --custom-dataset-type mooncake_trace --fixed-schedule \\
    --isl-block-size {block} --extra-inputs ignore_eos:true --artifact-dir aiperf --ui none
  RECORDS=aiperf/profile_export.jsonl
  ;;
*)
  echo "sh bench.sh [vllm|aiperf]" >&2
  exit 2
  ;;
esac
python3 check_slo.py "$RECORDS"
"""
