"""``presim fit``: prices from measurements."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("fit")
@click.argument("data", nargs=-1, required=True, metavar="DATA...", type=click.Path(path_type=Path))
@click.option("--nccl-tests", is_flag=True, help="DATA are logs of nccl-tests; --out is the cluster's file.")
@click.option("--out", required=True, metavar="FILE", type=click.Path(path_type=Path), help="Where the result goes.")
@click.option(
    "--gpu", default="", metavar="ID", help="With --nccl-tests: the GPU, where the logs' name for it is unknown."
)
@click.option(
    "--fabric", default="", metavar="ID", help="With --nccl-tests: the fabric, where not the node's usual one."
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
def command(data: tuple[Path, ...], nccl_tests: bool, out: Path, gpu: str, fabric: str, quiet: bool) -> None:
    """Fit prices to the measurements in DATA.

    With --nccl-tests a cluster's file is made of logs of nccl-tests, for --cluster of the other verbs: constants of the
    model of collectives, fitted to the logs, and the measurements themselves. Each log is of one collective on so many
    ranks; give logs of one node and of several, as many as there are. Half of the sizes are kept aside to say how well
    the constants hold.
    """
    from presim.cost.collectives.cluster_file import described, write_cluster

    if not nccl_tests:
        raise click.UsageError("what DATA is has to be said: --nccl-tests")
    fitted = write_cluster(data, out, gpu, fabric)
    if not quiet:
        for line in described(fitted):
            click.echo(line)
