"""``presim serve``: predict latency and throughput of a served model under a load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim.cli import completion, engine_flags, launched_engine
from presim.cli.engine_options import ENGINE
from presim.cli.fleet_options import FLEET, LIFE
from presim.cli.load_options import LOAD
from presim.cli.numbers import number
from presim.cli.option_groups import add_options, pop_options
from presim.cli.output_files import html_option, json_option, quiet_option
from presim.cli.verb import Verb
from presim.system.interrupts import noted
from presim.units import quantities

if TYPE_CHECKING:
    from presim.serving.deployments.deployment import Deployment
    from presim.serving.deployments.prediction import Prediction
    from presim.serving.engines.real import Engine


class ServeVerb(Verb):
    """``presim serve``, which knows the names that engines have for its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's; an engine's option is named with what to write instead, and ``--from`` stands for its words."""
        return engine_flags.parsed(self, ctx, launched_engine.expanded(self, ctx, args))


@click.command("serve", cls=ServeVerb)
@click.argument("model", shell_complete=completion.served_models)
@click.option(
    "--gpu",
    metavar="ID",
    help="GPU by catalogue id, e.g. h100-sxm, or a TOML file; default: --cluster's.",
    shell_complete=completion.gpus,
)
@click.option("--node", metavar="ID", help="Node type; default: the GPU's usual one.")
@click.option("--fabric", metavar="ID", help="Fabric; default: the node type's usual one.")
@click.option(
    "--cluster", metavar="FILE", help="TOML file that describes the cluster; engines share the links of its [network]."
)
@click.option(
    "--from",
    "launch",
    metavar="COMMAND",
    expose_value=False,
    help="Read MODEL and options from a command that starts an engine's server, as 'vllm serve ...'; options "
    "beside it override.",
)
@add_options(ENGINE, LOAD, FLEET, LIFE)
@json_option
@click.option("--detailed", is_flag=True, help="Include the times of each request in the JSON.")
@click.option("--detail", is_flag=True, help="Show one decode and one prefill step by operator, with their limits.")
@html_option
@click.option(
    "--perfetto", type=click.Path(path_type=Path), metavar="FILE", help="Write requests and steps for ui.perfetto.dev."
)
@click.option("--listen", type=number(quantities.PORT), metavar="PORT", help="Serve as an OpenAI endpoint instead.")
@click.option(
    "--speed",
    type=number(quantities.SPEED_UP),
    default=1.0,
    help="With --listen: speed-up over real time.",
)
@click.option(
    "--engine",
    type=click.Choice(("fast", "vllm", "sglang")),
    default="fast",
    help="vllm, sglang: also run that engine's own scheduler, and compare.",
)
@quiet_option
def command(model: str, **options: Any) -> int:
    """Predict latency, throughput and the largest load within an SLO for engines that serve MODEL.

    MODEL is a known name (llama3-8b, qwen3-30b-a3b, deepseek-v3, ...), or a model's config.json. Steps are priced from
    the model's shape; requests are scheduled as vLLM's or SGLang's own scheduler does.
    """
    from presim.cli.progress import progress
    from presim.errors import ExitCode
    from presim.serving.answer import metrics, screen, serving_record
    from presim.serving.answer.token_cost import TokenPrices
    from presim.serving.deployments.prediction import predict
    from presim.serving.serving_options import EngineOptions, FleetOptions, LifeOptions, LoadOptions
    from presim.verbs.serve import deployment_of, workload_of

    outputs = {
        name: options.pop(name)
        for name in ("json_file", "detailed", "detail", "html", "perfetto", "quiet", "listen", "speed", "engine")
    }
    _check(outputs)
    engine, load = pop_options(EngineOptions, options), pop_options(LoadOptions, options)
    fleet, life = pop_options(FleetOptions, options), pop_options(LifeOptions, options)
    slo = metrics.slo_of(fleet.slo, fleet.slo_percentile)
    prices = TokenPrices(fleet.price_per_gpu_hour, fleet.price_per_kwh)
    with progress(outputs["quiet"] or fleet.steps == "composed") as say:
        deployment = deployment_of(model, options, engine, fleet, life, say)
    if outputs["listen"] is not None:
        return _listen(deployment, outputs["listen"], outputs["speed"], load.grammar_ms)
    with noted("nothing is written, because not all requests were served"):
        prediction = predict(deployment, workload_of(load, deployment), slo, seed=load.seed)
    if outputs["engine"] != "fast":
        _compare_with(prediction, outputs["engine"])
    if outputs["html"]:
        from presim.serving.answer import serving_page
        from presim.system.files import write_file

        shown = serving_record.result_of(prediction, prices=prices, detailed_steps=outputs["detail"])
        write_file(outputs["html"], serving_page.render(shown).encode())
    if outputs["perfetto"]:
        from presim.serving.answer import request_trace

        request_trace.write(prediction.served, outputs["perfetto"])
    if outputs["json_file"]:
        saved = serving_record.result_of(
            prediction, per_request=outputs["detailed"], prices=prices, detailed_steps=outputs["detail"]
        )
        deliver(serving_record.encode(saved), outputs["json_file"])
    if not outputs["quiet"] and outputs["json_file"] != "-":
        screen.write(serving_record.result_of(prediction, prices=prices, detailed_steps=outputs["detail"]))
    return int(ExitCode.STANDS)


def _compare_with(prediction: Prediction, engine: Engine) -> None:
    """Serve the same workload with an engine's own scheduler, and report differences to the compiled one."""
    import dataclasses

    from presim.capture.setup.shim import SHIM_DIRECTORY
    from presim.serving.engines import real
    from presim.serving.engines.simulate_fleet import simulate

    # The engine's own scheduler runs without a server, whose streams would delay what arrives.
    fleet = dataclasses.replace(prediction.deployment.fleet(), input_load_ns=0)
    compiled = simulate(prediction.workload, fleet)
    reference = real.serve(prediction.workload, fleet, SHIM_DIRECTORY / "lib", engine)
    same = int(((compiled.first == reference.first) & (compiled.last == reference.last)).sum())
    click.echo(
        f"{real.NAMES[engine]}'s own scheduler: {reference.steps:,} steps, compiled {len(compiled.steps):,}; {same:,} "
        f"of {len(compiled.first):,} requests have the same first and last token to the nanosecond",
        err=True,
    )


def _listen(deployment: Deployment, port: int, speed: float, grammar_ms: float) -> int:
    """Run an endpoint until interrupted."""
    try:
        from presim.serving.endpoint.app import Endpoint, serve
    except ImportError as error:
        from presim.errors import InputError

        raise InputError(f"`presim serve --listen` needs {error.name}: pip install 'presim[view]'") from error

    from presim.system.localhost import listening_socket

    endpoint = Endpoint(deployment.fleet(), deployment.engine.model.name, speed, round(grammar_ms * 1e6))
    listening = listening_socket(port, "--listen")
    click.echo(f"Simulated engines at http://127.0.0.1:{listening.getsockname()[1]}/v1", err=True)
    serve(endpoint, listening)
    return 0


def _check(outputs: dict[str, Any]) -> None:
    from presim.system.files import check_writable

    for name in ("json_file", "html", "perfetto"):
        if outputs[name] not in (None, "-"):
            check_writable(outputs[name])


def deliver(content: bytes, path: str) -> None:
    """Write to a file, or to standard output if the path is -."""
    import sys

    from presim.system.files import write_file

    if path == "-":
        sys.stdout.buffer.write(content)
    else:
        write_file(path, content)
