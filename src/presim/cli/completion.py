"""Words that a shell completes: GPUs, node types, fabrics and models by name."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _beginning_with(incomplete: str, words: list[str]) -> list[CompletionItem]:
    """The words; where none begins so, files are completed, which all of these options take, too."""
    matches = [CompletionItem(word) for word in words if word.startswith(incomplete)]
    return matches or [CompletionItem(incomplete, type="file")]


def gpus(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """GPUs of the catalogue."""
    from presim.hardware import Gpu, catalogue

    return _beginning_with(incomplete, catalogue.ids(Gpu))


def nodes(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Node types of the catalogue."""
    from presim.hardware import catalogue
    from presim.hardware.cluster import Node

    return _beginning_with(incomplete, catalogue.ids(Node))


def fabrics(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Fabrics of the catalogue."""
    from presim.hardware import catalogue
    from presim.hardware.cluster import Fabric

    return _beginning_with(incomplete, catalogue.ids(Fabric))


def trained_models(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Models that `presim compose` knows by name."""
    from presim.composition.graph.take import named_models

    return _beginning_with(incomplete, list(named_models()))


def served_models(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Models that `presim serve` knows by name."""
    from presim.serving import model_lookup

    return _beginning_with(incomplete, model_lookup.names())
