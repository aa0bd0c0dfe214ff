"""``torchrun``, ``python -m torch.distributed.run`` and ``python -m torch.distributed.launch``.

Options as in PyTorch 2.15, torch/distributed/run.py; each may also come from the environment (``PET_NNODES`` …).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from presim.capture.launchers.launch import Launch, Scheme, Shape, Worker, torchrun_variables
from presim.capture.launchers.launcher_options import Grammar, Options, names, parse, whole_number
from presim.capture.launchers.python import read_program
from presim.errors import InputError

GRAMMAR = Grammar(
    "torchrun",
    names("standalone module no-python run-path virtual-local-rank use-env", m="module"),
    names(
        "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval start-method "
        "event-log-handler role log-dir redirects tee log-line-prefix-template local-ranks-filter "
        "duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs "
        "numa-binding signals-to-handle shutdown-timeout",
        r="redirects",
        t="tee",
    ),
    is_complete=True,
)
_ALL = ("gpu", "auto")  # values of --nproc-per-node for every GPU of the node


def read_torchrun(words: Sequence[str], *, legacy: bool = False) -> Launch:
    """Parse the options and program after ``torchrun``, or with ``legacy`` after ``torch.distributed.launch``.

    Raises:
        InputError: an option's value is invalid, or no Python program is started.
    """
    options = parse(GRAMMAR, words)
    per_node, all_gpus = _per_node(options)
    launch = Launch(
        options.program[0],
        tuple(options.program[1:]),
        options.has("module"),
        launcher="torchrun",
        shape=Shape(nodes=_nodes(options), per_node=per_node),
        default_shape=Shape(nodes=1, per_node=None if all_gpus else 1),
        schemes=(_scheme(options),),
        notes=options.notes(),
    )
    if legacy and not options.has("use-env"):
        launch = dataclasses.replace(launch, local_rank="--local-rank")
    return read_program(options.program, launch) if options.has("no-python") else launch


def _nodes(options: Options) -> int | None:
    """``--nnodes N`` or ``MIN:MAX``; an elastic job is predicted at its maximum size."""
    text = options.text("nnodes", os.environ.get("PET_NNODES", ""))
    if options.has("standalone"):
        return 1
    if not text:
        return None
    bounds = [whole_number(part) for part in text.split(":")]
    if not all(bounds) or len(bounds) > 2:
        raise InputError(f"torchrun: --nnodes {text[:80]} must be a number or MIN:MAX; correct it")
    return bounds[-1]


def _per_node(options: Options) -> tuple[int | None, bool]:
    """Processes per node, and whether that is one per GPU."""
    text = options.text("nproc-per-node", os.environ.get("PET_NPROC_PER_NODE", ""))
    if text in _ALL:
        return None, True
    if text and not whole_number(text):
        raise InputError(f"torchrun: --nproc-per-node {text[:80]} must be a number of GPUs, gpu or auto; correct it")
    return whole_number(text), False


def _scheme(options: Options) -> Scheme:
    option_variables = {
        "ROLE_NAME": options.text("role", "default"),
        "TORCHELASTIC_RUN_ID": options.text("rdzv-id", "none"),
        "TORCHELASTIC_MAX_RESTARTS": options.text("max-restarts", "0"),
    }

    def variables(worker: Worker) -> dict[str, str]:
        variable_values = torchrun_variables(worker) | option_variables
        return variable_values | {"LOCAL_RANK": "0"} if options.has("virtual-local-rank") else variable_values

    return variables
