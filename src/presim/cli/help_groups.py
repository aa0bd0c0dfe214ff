"""Under which heading the help shows each option, and which options `--help` shows first.

A flag has the same heading in all verbs, except in those of ``_OF_VERB``. A new option needs its line here; a test
names those without.
"""

from __future__ import annotations

HEADINGS = {  # heading -> flags, in the order of the help
    "Model": (
        "--model --dtype --weights --expert-weights --kv --framework --precision --framework-args --like --pass "
        "--passes --attention --speculative --draft-tokens --acceptance --draft-model --max-loras --lora-rank --from "
        "--batch --depth --entries --modules"
    ),
    "Cluster": (
        "--gpu --nodes --gpus-per-node --world-size --node --fabric --cluster --total-gpus --max-gpus --matrix --ranks "
        "--rank --max-power --max-price --max-cost --nccl-version --set"
    ),
    "Plan": (
        "--plan --seq --mbs --global-batch --tp --pp --vpp --cp --cp-style --ep --sp --dp --dcp --dp-style --shard "
        "--reshard --overlap --schedule --schedule-file --side-by-side --stages --micro-batches --layers --larger "
        "--wider --recompute --recompute-blocks --activation-budget --optimizer --offload-activations "
        "--offload-optimizer --clip --cuda-graphs --vocabulary "
        "--expert-exchange --routing --expert-capacity --pad-experts --offload --micro-tokens --micro-sequences "
        "--logprob-tokens --logprob-sequences --logits "
        "--fusions --balance --pad-to-longest --merge-adapters --routing-replay "
        "--train --mini-batch --epochs --algorithm --reference --old-logprobs"
    ),
    "Rollout": (
        "--placement --rollout-gpus --rollout-tp --rollout-ep --staleness --partial --transfer --reward-seconds "
        "--reward-workers --reward-model --critic --tool-seconds --tool-tokens --tool-workers --round-prompts "
        "--spare-prompts --cut-tail --vllm-start --assignment --sglang-release --controller --sleep-level "
        "--overlap-sync"
    ),
    "Engine": (
        "--kernels --scheduler --engine-version --gpu-memory-utilization --max-num-seqs --max-num-batched-tokens "
        "--max-model-len --block-size --num-gpu-blocks --max-prefill-tokens --scheduler-recv-interval "
        "--prefill-schedule-interval --policy --max-cudagraph-capture-size --eager --no-async --no-prefix-caching "
        "--language-model-only --fp8-products --kv-host --kv-disk --kv-host-bandwidth --kv-disk-bandwidth "
        "--overheads --grammar-ms --engine"
    ),
    "Load": (
        "--rate --concurrency --requests --input --output --arrivals --burstiness --burst --ramp-to --shared-prefix "
        "--groups --turns --think --adapters --structured --trace --trace-unit --trace-block-tokens --workload "
        "--lengths --prompts --samples --prompt-tokens --response --values --draws --collective --bytes --together"
    ),
    "Fleet": (
        "--replicas --prefill-replicas --prefill-tp --prefill-gpu --router --kv-shared "
        "--kv-shared-bandwidth --no-disaggregation --autoscale "
        "--scale-on --scale-target --scale-interval --cooldown --start-up --drain --on-failure --detect"
    ),
    "Goal": "--slo --slo-percentile --objective --spare --max-days",
    "Search": (
        "--search --vary --confirm --capture-each --space --sampler --trials --prune --gap --jobs --ray --study "
        "--framework-plans"
    ),
    "Capture": "--save --steps --check --check-time --limit --profile-missing --live --sanitize -m --step --missing",
    "Training": (
        "--tokens --price-per-gpu-hour --price-per-kwh --failures --mtbf --checkpoint --interval --restart --repair "
        "--spares --elastic --runs"
    ),
    "What-if": "--bandwidth --straggler --scale-op --fail --events --jitter --jitter-draws --force --scale --change",
    "Pricing": (
        "--prices --estimator --host-factor --host-time --no-contention --overlap-model --ranks-simulated --resolution "
        "--seed --budget --work-budget"
    ),
    "Data": (
        "--import --update --operators --nccl-tests --rows --seconds --kind --only --recipes --captures --again "
        "--oracle --job --report --baseline --with"
    ),
    "Output": (
        "--json --html --csv --perfetto --memory-snapshot --chakra --kineto --write --out --plot --toml --markdown "
        "--junit --keep --detailed --detail --save-workload --listen --speed --port --host "
        "--token-file --allow-scripts --open --deep --prepare --export --quiet"
    ),
}
_OF_VERB = {  # where a flag means something else
    ("search", "--max-gpus"): "Goal",
    ("prefill", "--sp"): "Cluster",
    ("prefill", "--budget"): "Load",
    ("training", "--jitter"): "Training",
    ("rl", "--steps"): "Plan",
    ("serve", "--steps"): "Engine",
    ("serve", "--mtbf"): "Fleet",
    ("serve", "--price-per-gpu-hour"): "Goal",
    ("serve", "--price-per-kwh"): "Goal",
    ("profile", "--trace"): "Data",
    ("calibrate serving", "--from"): "Data",
    ("calibrate job", "--trace"): "Data",
    ("trace", "--rank"): "Model",
    ("validate", "--limit"): "Data",
    ("validate", "--gpu"): "Data",
    ("deploy", "--engine"): "Engine",
    ("graph show", "--seq"): "Model",
    ("rl", "--price-per-gpu-hour"): "Output",
}
_COMMON = {  # verb -> flags of --help; a verb that is not here has so few that --help shows all
    "run": "--gpu --nodes --gpus-per-node --ranks --steps --save --live --values --bandwidth --json --html "
    "--perfetto -q",
    "import": "--gpu --nodes --gpus-per-node --out --step --missing --bandwidth --straggler --json --html -q",
    "simulate": "--gpu --nodes --gpus-per-node --bandwidth --straggler --scale-op --fail --jitter --json --html "
    "--perfetto -q",
    "replan": "--gpu --nodes --gpus-per-node --layers --pp --micro-batches --dp --json --html -q",
    "compose": "--gpu --nodes --gpus-per-node --plan --seq --mbs --global-batch --tp --pp --cp --ep --dp-style "
    "--recompute --optimizer --framework --like --bandwidth --straggler --save --write --json --html --perfetto -q",
    "search": "--gpu --nodes --gpus-per-node --seq --mbs --global-batch --tp --pp --cp --ep --dp-style --recompute "
    "--vary --objective --spare --confirm --study --write --csv --json --html -q",
    "explain": "--gpu --nodes --gpus-per-node --model --plan --confirm --vary --json --html -q",
    "serve": "--gpu --cluster --tp --pp --ep --weights --kv --kernels --gpu-memory-utilization --speculative --rate "
    "--concurrency --requests --input --output --trace --replicas --prefill-replicas --slo --price-per-gpu-hour "
    "--detail --listen --json --html --perfetto -q",
    "deploy": "--gpu --total-gpus --max-gpus --rate --input --output --trace --slo --max-cost --engine --kv --write "
    "--csv --json --html -q",
    "rl": "--from --gpu --nodes --gpus-per-node --prompts --samples --response --tp --pp --dp-style --placement "
    "--rollout-gpus --rollout-tp --staleness --search --json --html -q",
    "training": "--tokens --price-per-gpu-hour --price-per-kwh --failures --mtbf --checkpoint --spares --elastic "
    "--json --html -q",
    "calibrate serving": "--from --gpu --tp --pp --ep --weights --kv --kernels --replicas --out",
}
_HEADING_OF = {flag: heading for heading, flags in HEADINGS.items() for flag in flags.split()}


def heading_of(verb: str, flag: str) -> str:
    """The heading of an option by its longest flag; empty: it has none."""
    return _OF_VERB.get((verb, flag), _HEADING_OF.get(flag, ""))


def common_flags(verb: str) -> frozenset[str]:
    """The flags that ``--help`` shows; empty: it shows all."""
    return frozenset(_COMMON.get(verb, "").replace("-q", "--quiet").split())
