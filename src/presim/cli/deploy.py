"""``presim deploy``: find the deployment of a model with the most throughput within an SLO, and write launch files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from presim import quantities
from presim.cli.numbers import number
from presim.cli.options import PRICES
from presim.cli.serving_options import WEIGHTS

if TYPE_CHECKING:
    from presim.serving.answer.metrics import Slo
    from presim.serving.deployments.search import Found, Point

_SHOWN = 8


@click.command("deploy")
@click.argument("model")
@click.option("--gpu", "gpus", multiple=True, required=True, metavar="ID", help="GPU to consider; repeatable.")
@click.option(
    "--input", "prompt", type=number(quantities.TOKENS), default=1024, show_default=True, help="Prompt tokens."
)
@click.option("--output", type=number(quantities.TOKENS), default=256, show_default=True, help="Output tokens.")
@click.option("--slo", multiple=True, metavar="METRIC:MS", help="ttft:500 or tpot:50; repeatable.")
@click.option(
    "--max-gpus", type=number(quantities.GPUS), default=16, show_default=True, help="Most GPUs per deployment."
)
@click.option("--weights", multiple=True, type=WEIGHTS, help="Types to try.")
@click.option(
    "--engine", "engines", multiple=True, type=click.Choice(("vllm", "sglang")), help="Engines to try; default: vllm."
)
@PRICES
@click.option("--no-disaggregation", is_flag=True, help="Do not separate prefill from decode.")
@click.option("--json", "json_file", metavar="FILE", help="Write the result as JSON; - is standard output.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the launch files.",
)
def command(model: str, gpus: tuple[str, ...], **options: Any) -> None:
    """Find the deployment of MODEL with the highest throughput per GPU within an SLO.

    All plans are ranked by their steady-state throughput; the best are simulated request by request. --out receives
    the command, a Compose file and Kubernetes manifests.
    """
    from presim.serving.answer import metrics
    from presim.serving.deployments import search
    from presim.serving.model import find
    from presim.serving.workloads.generate import Lengths, Recipe

    slo = metrics.slo_of(options["slo"])
    if slo.e2el_ms is not None:
        raise click.UsageError("`presim deploy` supports ttft and tpot in --slo; use `presim serve` for e2el")
    space = search.Space(
        gpus,
        weights=options["weights"] or ("bf16", "fp8"),
        most_gpus=options["max_gpus"],
        engines=options["engines"] or ("vllm",),
        disaggregated=not options["no_disaggregation"],
        prices=tuple(map(Path, options["prices"])),
    )
    found = search.search(find(model), space, options["prompt"], options["output"], slo)
    recipe = Recipe(1, Lengths(options["prompt"], lowest=0.8), Lengths(options["output"], lowest=0.8))
    confirmed = [search.confirm(point, recipe, slo) for point in search.spread(found, 3)]
    if options["out"] is not None and found.best is not None:
        _write(options["out"], model, found.best)
    if options["json_file"]:
        from presim.cli.serve import deliver

        deliver(
            (json.dumps(_document(found, confirmed), indent=1, sort_keys=True) + "\n").encode(), options["json_file"]
        )
    if options["json_file"] != "-":
        _print(found, confirmed, slo)


def _entry(point: Point) -> dict[str, Any]:
    return {
        "deployment": point.text,
        "gpus": point.gpus,
        "ttft_ms": point.ttft_ms,
        "tpot_ms": point.tpot_ms,
        "tokens_per_s_per_gpu": point.per_gpu,
        "tokens_per_s_per_user": point.per_user,
    }


def _document(found: Found, confirmed: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": "presim-deployments/1",
        "judged": len(found.points),
        "refused": found.refused,
        "pareto": [_entry(point) for point in found.pareto],
        "best": _entry(found.best) if found.best else None,
        "nearest": _entry(found.nearest) if found.nearest else None,
        "simulated": confirmed,
        "not_modelled": found.not_modelled,
    }


def _print(found: Found, confirmed: list[dict[str, Any]], slo: Slo) -> None:
    from presim.serving.deployments.search import spread

    click.echo(f"{len(found.points):,} deployments evaluated, {len(found.pareto)} on the Pareto front.")
    if found.nearest is not None:
        near = found.nearest
        click.echo(
            f"None meets the SLO; the nearest: {near.text}, TTFT {near.ttft_ms:.0f} ms, TPOT {near.tpot_ms:.1f} ms"
        )
    for point in spread(found, _SHOWN):
        click.echo(
            f"  {point.per_gpu:8,.0f} tokens/s/GPU {point.per_user:6.0f} tokens/s/user  TTFT {point.ttft_ms:6.0f} ms  "
            f"{point.text}"
        )
    if confirmed:
        click.echo("Simulated request by request, from the fewest to the most tokens/s/GPU:")
    for entry in confirmed:
        kept = "" if not slo.bounds else (", meets the SLO" if entry["meets_slo"] else ", misses the SLO at p99")
        click.echo(
            f"  {entry['output_throughput']:8,.0f} tokens/s  TTFT {entry['mean_ttft_ms']:.0f} ms  TPOT "
            f"{entry['mean_tpot_ms']:.1f} ms{kept}  {entry['deployment']}"
        )
    for reason, count in sorted(found.refused.items()):
        click.echo(f"  rejected, {count}: {reason}")
    for limit in found.not_modelled:
        click.echo(limit)


def _write(folder: Path, model: str, best: Point) -> None:
    import dataclasses

    from presim.files import make_folder, write_file
    from presim.serving.deployments import launch as deploy

    make_folder(folder)
    plan = dataclasses.replace(best.engine.plan, max_num_seqs=max(best.batch, 1))
    role = "decode" if best.prefill_replicas else "any"
    write_file(folder / "serve.sh", f"#!/bin/sh\nexec {deploy.command(model, plan, role)}\n".encode())
    write_file(folder / "compose.json", deploy.compose(model, plan, best.replicas, best.prefill_replicas).encode())
    manifests = deploy.kubernetes(model, plan, best.replicas, best.prefill_replicas)
    write_file(folder / "kubernetes.json", manifests.encode())
