"""``presim serve``: predict latency and throughput of a served model under a load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from presim.serving.deployments.deployment import Deployment, Prediction
    from presim.serving.engines.engine import Life
    from presim.serving.plan import Plan
    from presim.serving.workloads.workload import Workload

_WEIGHTS = click.Choice(("bf16", "fp8", "fp8-block", "fp4", "int4"))
_EXPERTS = click.Choice(("bf16", "fp8", "fp8-block", "fp4", "mxfp4", "int4"))
ENGINE = (
    click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="Tensor-parallel degree."),
    click.option("--pp", type=click.IntRange(1), default=1, show_default=True, help="Pipeline stages."),
    click.option(
        "--dp",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Data-parallel degree of attention; these ranks share the experts.",
    ),
    click.option("--ep", is_flag=True, help="Expert parallelism: each rank holds whole experts."),
    click.option("--weights", type=_WEIGHTS, default="bf16", show_default=True, help="Data type of the weights."),
    click.option("--expert-weights", type=_EXPERTS, help="Data type of expert weights; default: same as --weights."),
    click.option(
        "--kv", "cache", type=click.Choice(("bf16", "fp8")), default="bf16", show_default=True, help="KV cache."
    ),
    click.option(
        "--kernels",
        type=click.Choice(("vllm", "sglang", "trtllm")),
        default="vllm",
        show_default=True,
        help="Kernel library for the experts.",
    ),
    click.option("--gpu-memory-utilization", type=float, default=0.92, show_default=True, help="Same as in vLLM."),
    click.option("--max-num-seqs", type=click.IntRange(1), default=256, show_default=True, help="Same as in vLLM."),
    click.option(
        "--max-num-batched-tokens", type=click.IntRange(1), default=8192, show_default=True, help="Same as in vLLM."
    ),
    click.option("--max-model-len", type=click.IntRange(1), help="Same as in vLLM; default: the model's limit."),
    click.option("--block-size", type=click.IntRange(1), default=16, show_default=True, help="Tokens per KV block."),
    click.option(
        "--scheduler-recv-interval",
        type=click.IntRange(1),
        default=1,
        help="SGLang: steps between polls for new requests.",
    ),
    click.option(
        "--num-gpu-blocks", type=click.IntRange(2), help="Number of KV blocks; default: from the available memory."
    ),
    click.option(
        "--policy", type=click.Choice(("fcfs", "priority")), default="fcfs", show_default=True, help="Same as in vLLM."
    ),
    click.option(
        "--no-async", "async_scheduling", flag_value=False, default=True, type=bool, help="Schedule synchronously."
    ),
    click.option(
        "--no-prefix-caching", "prefix_caching", flag_value=False, default=True, type=bool, help="Same as in vLLM."
    ),
    click.option(
        "--speculative",
        type=click.Choice(("mtp", "eagle", "draft", "ngram")),
        help="Speculative decoding: the model's own MTP module, an EAGLE head, a draft model, or n-grams of the text.",
    ),
    click.option("--draft-tokens", type=click.IntRange(1, 16), default=1, show_default=True, help="Tokens per draft."),
    click.option(
        "--acceptance",
        type=click.FloatRange(0, 1),
        help="Probability that a drafted token is accepted; default: mtp 0.85, eagle and draft 0.7, ngram 0.3.",
    ),
    click.option("--draft-model", metavar="MODEL", help="Draft model for --speculative draft."),
    click.option("--kv-host", type=click.FloatRange(0), default=0.0, help="GiB of host memory for cached KV blocks."),
    click.option("--kv-disk", type=click.FloatRange(0), default=0.0, help="GiB of disk for cached KV blocks."),
    click.option(
        "--kv-host-bandwidth",
        type=click.FloatRange(0, min_open=True),
        help="GB/s from host memory to one GPU; default: 0.8 of its PCIe or C2C link.",
    ),
    click.option(
        "--kv-disk-bandwidth",
        type=click.FloatRange(0, min_open=True),
        default=6.0,
        show_default=True,
        help="GB/s from a node's disks.",
    ),
    click.option("--eager", "cuda_graphs", flag_value=False, default=True, type=bool, help="Run without CUDA graphs."),
)
_LOAD = (
    click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests per second; default: all at once."),
    click.option("--concurrency", type=click.IntRange(0), default=0, help="Most requests in flight; 0: no limit."),
    click.option("--requests", type=click.IntRange(1), help="Number of requests; default: 1000, or all of a trace."),
    click.option("--input", "prompt", default="1024", show_default=True, help="Prompt tokens: N, N~SPREAD or a file."),
    click.option("--output", default="256", show_default=True, help="Output tokens, in the same notation."),
    click.option(
        "--arrivals",
        type=click.Choice(("poisson", "gamma", "constant", "burst", "ramp")),
        default="poisson",
        show_default=True,
        help="Arrival process of requests.",
    ),
    click.option("--burstiness", type=click.FloatRange(0, min_open=True), default=1.0, help="For gamma arrivals."),
    click.option("--burst", type=click.IntRange(1), default=8, help="Requests per burst."),
    click.option("--ramp-to", type=click.FloatRange(0, min_open=True), help="Rate at the end of a ramp."),
    click.option("--shared-prefix", type=click.IntRange(0), default=0, help="Tokens that prompts of a group share."),
    click.option("--groups", type=click.IntRange(1), default=1, help="Groups that share a prefix."),
    click.option("--turns", type=click.IntRange(1), default=1, help="Turns per conversation."),
    click.option("--think", "think_s", type=click.FloatRange(0), default=0.0, help="Seconds between turns."),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed."),
    click.option("--trace", type=click.Path(path_type=Path), help="Public request trace to replay."),
    click.option("--workload", "saved", type=click.Path(path_type=Path), help="Workload file from --save-workload."),
    click.option("--save-workload", type=click.Path(path_type=Path), help="Save the workload to a file."),
)
_FLEET = (
    click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Number of engines."),
    click.option("--prefill-replicas", type=click.IntRange(0), default=0, help="Prefill-only engines."),
    click.option("--prefill-tp", type=click.IntRange(1), help="Their tensor-parallel size; default: --tp."),
    click.option(
        "--router",
        type=click.Choice(("round-robin", "least-loaded", "power-of-two", "prefix", "session")),
        default="round-robin",
        show_default=True,
        help="Load-balancing policy between engines.",
    ),
    click.option("--overheads", type=click.Path(path_type=Path), help="File from `presim calibrate serving`."),
    click.option(
        "--steps",
        default="composed",
        show_default=True,
        metavar="HOW",
        help="Step times: composed; captured from vLLM's model runner; or the folder of a captured set.",
    ),
    click.option("--slo", multiple=True, metavar="METRIC:MS", help="ttft:500, tpot:50, e2el:5000; repeatable."),
    click.option("--price-per-gpu-hour", type=click.FloatRange(0, min_open=True), help="Price per GPU hour."),
    click.option("--price-per-kwh", type=click.FloatRange(0, min_open=True), help="Price per kWh."),
    click.option(
        "--slo-percentile",
        type=click.FloatRange(0, 100),
        default=99.0,
        show_default=True,
        help="Percentile of requests that must meet the SLO.",
    ),
)


_LIFE = (
    click.option(
        "--autoscale", metavar="MIN:MAX", help="Autoscale between MIN and MAX engines, instead of --replicas."
    ),
    click.option(
        "--scale-on",
        type=click.Choice(("utilization", "queue")),
        default="utilization",
        show_default=True,
        help="Signal: requests per engine relative to --max-num-seqs, or waiting requests.",
    ),
    click.option(
        "--scale-target",
        type=click.FloatRange(0, min_open=True),
        help="Target of the signal per engine; default: utilization 0.7, queue 4.",
    ),
    click.option(
        "--scale-interval",
        type=float,
        default=15.0,
        show_default=True,
        help="Seconds between decisions of the autoscaler.",
    ),
    click.option(
        "--cooldown",
        type=float,
        default=300.0,
        show_default=True,
        help="Seconds that fewer engines must suffice before one is removed.",
    ),
    click.option(
        "--start-up", type=click.FloatRange(0), default=120.0, show_default=True, help="Seconds to start an engine."
    ),
    click.option(
        "--drain",
        type=click.FloatRange(0),
        help="Seconds a removed engine may finish requests; default: until all are done.",
    ),
    click.option("--mtbf", type=click.FloatRange(0, min_open=True), help="Hours between failures of an engine."),
    click.option(
        "--on-failure",
        type=click.Choice(("resume", "restart", "lose")),
        default="resume",
        show_default=True,
        help="Requests of a failed engine keep their tokens, restart, or are lost.",
    ),
    click.option(
        "--detect", type=click.FloatRange(0), default=5.0, show_default=True, help="Seconds to detect a failure."
    ),
)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def add_options(*groups: tuple[Any, ...]) -> Callable[[_Function], _Function]:
    """Decorator that adds all options of some groups, in order."""

    def add(function: _Function) -> _Function:
        for option in reversed([one for group in groups for one in group]):
            function = option(function)
        return function

    return add


@click.command("serve")
@click.argument("model")
@click.option("--gpu", required=True, metavar="ID", help="GPU by catalogue id, e.g. h100-sxm, or a TOML file.")
@click.option("--node", metavar="ID", help="Node type; default: the GPU's usual one.")
@click.option("--fabric", metavar="ID", help="Fabric; default: the node type's usual one.")
@add_options(ENGINE, _LOAD, _FLEET, _LIFE)
@click.option("--json", "json_file", metavar="FILE", help="Write the result as JSON; - is standard output.")
@click.option("--detailed", is_flag=True, help="Include the times of each request in the JSON.")
@click.option("--html", type=click.Path(path_type=Path), help="Write an HTML page with charts.")
@click.option("--perfetto", type=click.Path(path_type=Path), help="Write requests and steps, for ui.perfetto.dev.")
@click.option("--listen", type=click.IntRange(0, 65535), metavar="PORT", help="Serve as an OpenAI endpoint instead.")
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    help="With --listen: speed-up over real time.",
)
@click.option(
    "--engine",
    type=click.Choice(("fast", "vllm")),
    default="fast",
    help="vllm: also run vLLM's own scheduler, and compare.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no report.")
def command(model: str, gpu: str, node: str | None, fabric: str | None, **options: Any) -> int:
    """Predict latency, throughput and the largest load within an SLO for engines that serve MODEL.

    MODEL is a known name (llama3-8b, qwen3-30b-a3b, deepseek-v3, ...), or a model's config.json. Steps are priced from
    the model's shape; requests are scheduled as vLLM's own scheduler does.
    """
    from presim.errors import ExitCode
    from presim.serving.answer import metrics, record
    from presim.serving.answer.cost import Prices
    from presim.serving.deployments.deployment import predict

    outputs = {
        name: options.pop(name)
        for name in ("json_file", "detailed", "html", "perfetto", "quiet", "listen", "speed", "engine")
    }
    _check(outputs)
    slo = metrics.slo_of(options.pop("slo"), options.pop("slo_percentile"))
    prices = Prices(options.pop("price_per_gpu_hour"), options.pop("price_per_kwh"))
    deployment = _deployment(model, gpu, node, fabric, options, quiet=outputs["quiet"])
    if outputs["listen"] is not None:
        return _listen(deployment, outputs["listen"], outputs["speed"])
    workload = _workload(options)
    prediction = predict(deployment, workload, slo, seed=options["seed"])
    if outputs["engine"] == "vllm":
        _compare_with_vllm(prediction)
    if outputs["html"]:
        from presim.serving.answer import page

        page.write(prediction, outputs["html"], prices)
    if outputs["perfetto"]:
        from presim.serving.answer import timeline

        timeline.write(prediction.served, outputs["perfetto"])
    if outputs["json_file"]:
        deliver(record.encode(prediction, each=outputs["detailed"], prices=prices), outputs["json_file"])
    if not outputs["quiet"] and outputs["json_file"] != "-":
        from rich.console import Console

        Console(highlight=False).print(record.screen(prediction, prices))
    return int(ExitCode.STANDS)


def _compare_with_vllm(prediction: Prediction) -> None:
    """Serve the same workload with vLLM's own scheduler, and report differences to the compiled one."""
    from presim.capture.setup.shim import SHIM_DIRECTORY
    from presim.serving.engines import real

    fleet = prediction.deployment.fleet()
    compiled, reference = prediction.served, real.serve(prediction.workload, fleet, SHIM_DIRECTORY / "lib")
    same = int(((compiled.first == reference.first) & (compiled.last == reference.last)).sum())
    click.echo(
        f"vLLM's own scheduler: {reference.steps:,} steps, compiled {len(compiled.steps):,}; {same:,} of "
        f"{len(compiled.first):,} "
        "requests have the same first and last token to the nanosecond",
        err=True,
    )


def _listen(deployment: Deployment, port: int, speed: float) -> int:
    """Run an endpoint until interrupted."""
    import asyncio

    from presim.serving.engines.http import Server

    async def run() -> None:
        server = Server(deployment.fleet(), deployment.engine.model.name, speed)
        listening = await server.serve("127.0.0.1", port)
        click.echo(f"Simulated engines at http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", err=True)
        await listening.serve_forever()

    asyncio.run(run())
    return 0


def _check(outputs: dict[str, Any]) -> None:
    from presim.files import check_writable

    for name in ("json_file", "html", "perfetto"):
        if outputs[name] not in (None, "-"):
            check_writable(outputs[name])


def deliver(content: bytes, path: str) -> None:
    """Write to a file, or to standard output if the path is -."""
    import sys

    from presim.files import write_file

    if path == "-":
        sys.stdout.buffer.write(content)
    else:
        write_file(path, content)


def _deployment(
    model: str, gpu: str, node: str | None, fabric: str | None, options: dict[str, Any], *, quiet: bool = False
) -> Deployment:
    import dataclasses

    from presim.cli.progress import progress
    from presim.hardware.choose import choose_cluster
    from presim.serving.deployments.deployment import Deployment
    from presim.serving.model import config_of, from_config
    from presim.serving.steps import overheads
    from presim.serving.steps.times import build
    from presim.verbs.capture_steps import engine_with_steps

    config, name = config_of(model)
    shape = from_config(config, name)
    plan = plan_of(options)
    plan.check(shape)

    over = overheads.read(options["overheads"]) if options["overheads"] else None

    def engine(one: Plan) -> Any:
        made = build(shape, one, choose_cluster(gpu=gpu, node=node, fabric=fabric, world_size=one.gpus), over)
        if options["steps"] == "composed":
            return made
        with progress(quiet) as say:
            return engine_with_steps(made, config, options["steps"], say)

    life = _life(options)
    replicas = life.scaling.most if life is not None and life.scaling is not None else options["replicas"]
    first = options["prefill_replicas"]
    prefill = engine(dataclasses.replace(plan, tp=options["prefill_tp"] or plan.tp)) if first else None
    return Deployment(engine(plan), replicas, options["router"], prefill, first, life)


def _life(options: dict[str, Any]) -> Life | None:
    """The life cycle of engines; None if they neither scale nor fail."""
    from presim.errors import InputError
    from presim.serving.engines.engine import Life, Scaling

    words, scaling = options["autoscale"], None
    if words is None and options["mtbf"] is None:
        return None
    if words is not None:
        least, _, most = words.partition(":")
        if not (least.isdigit() and most.isdigit()):
            raise InputError(f"--autoscale is MIN:MAX engines, not {words!r}; e.g. --autoscale 2:8")
        on = options["scale_on"]
        target = options["scale_target"] or (0.7 if on == "utilization" else 4.0)
        scaling = Scaling(int(least), int(most), on, target, options["scale_interval"], options["cooldown"])
    return Life(
        scaling, options["start_up"], options["mtbf"], options["on_failure"], options["detect"], options["drain"]
    )


def plan_of(options: dict[str, Any]) -> Plan:
    """Remove the options of `ENGINE` and return them as a plan."""
    import dataclasses

    from presim.serving.drafting import drafting_of
    from presim.serving.model import find
    from presim.serving.plan import Offload, Plan

    fields = {field.name for field in dataclasses.fields(Plan)}
    chosen = {name: options.pop(name) for name in list(options) if name in fields}
    method, tokens, likely, name = (
        options.pop(key) for key in ("speculative", "draft_tokens", "acceptance", "draft_model")
    )
    host, disk, link, disks = (
        options.pop(key) for key in ("kv_host", "kv_disk", "kv_host_bandwidth", "kv_disk_bandwidth")
    )
    offload = Offload(host, disk, link, disks) if host or disk else None
    drafting = drafting_of(method, tokens, likely, find(name) if name else None)
    return Plan(**chosen, drafting=drafting, offload=offload)


def _workload(options: dict[str, Any]) -> Workload:
    from presim.serving.workloads import generate, traces, workload

    if options["trace"] is not None:
        made = traces.read_trace(options["trace"], options["requests"])
    elif options["saved"] is not None:
        made = workload.read(options["saved"])
        made = made.first(options["requests"] or len(made))
    else:
        names = (
            "rate",
            "arrivals",
            "burstiness",
            "ramp_to",
            "burst",
            "concurrency",
            "shared_prefix",
            "groups",
            "turns",
        )
        made = generate.generate(
            generate.Recipe(
                options["requests"] or 1000,
                generate.lengths_of(options["prompt"]),
                generate.lengths_of(options["output"]),
                think_s=options["think_s"],
                seed=options["seed"],
                **{name: options[name] for name in names},
            )
        )
    if options["save_workload"] is not None:
        workload.write(made, options["save_workload"])
    return made
