"""``presim models``: the models that are known by name."""

from __future__ import annotations

import click


@click.command("models")
@click.argument("word", required=False, default="")
@click.option("--json", "json_file", metavar="FILE", help="Write the list as JSON; - is standard output.")
@click.option("-q", "--quiet", is_flag=True, help="Print no table.")
def command(word: str, json_file: str | None, quiet: bool) -> None:
    """List the models that are known by name, or those with WORD in it.

    Parameters, layers, longest sequence, data type of the published weights, and for which verbs: compose stands for
    compose, search and graph, serve for serve, deploy and prefill. Each of them also takes a config.json, and an id in
    Hugging Face's local cache.
    """
    from presim.cli.serve import deliver
    from presim.files import check_writable
    from presim.verbs.list_models import encode, list_models, write

    if json_file not in (None, "-"):
        check_writable(str(json_file))
    content = list_models(word)
    if json_file:
        deliver(encode(content), json_file)
    if not quiet and json_file != "-":
        write(content)
