"""``presim models``: the models that are known by name."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.report_options import Report, report_options
from presim.cli.verb import Verb


@click.command("models", cls=Verb)
@click.argument("word", required=False, default="")
@report_options
def command(word: str, **options: Any) -> None:
    """List the models that are known by name, or those with WORD in it.

    Parameters, layers, longest sequence, data type of the published weights, and for which verbs: compose stands for
    compose, search and graph, serve for serve, deploy and prefill. Each of them also takes a config.json, and an id in
    Hugging Face's local cache.
    """
    from presim.verbs.list_models import encode, list_models

    report = Report.pop_from(options)
    content = list_models(word)
    report.deliver("models", content, encode(content))
