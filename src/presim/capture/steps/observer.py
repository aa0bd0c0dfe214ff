"""Leave marks where the script calls its model, updates parameters, reads data or replays a graph.

End it when enough of its steps have run.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import weakref
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from torch._C._functorch import is_gradtrackingtensor
from torch.utils.data import dataloader

from presim.capture.script.batch_reads import BatchReads
from presim.capture.script.hook import Hook
from presim.capture.script.real_clock import now_ns
from presim.capture.steps.log_view import LogView
from presim.capture.steps.loop_tree import LoopTree
from presim.capture.steps.marks import Event, Mark, MarkWriter
from presim.capture.steps.positions import LoopPositions
from presim.capture.steps.stopping import Stop, Stopping, loop_of_steps

# An optimizer of fewer parameters than this share of those that the model trains is no sign of a step: a temperature or
# a loss scale beside them. Optimizers may hold only the shard of one rank of the world.
_SMALL_SHARE = 0.01
_SAME = object()


@dataclasses.dataclass
class _Recorded:
    """What a CUDA graph holds."""

    has_backward: bool = False
    has_update: bool = False
    tokens: int = 0
    samples: int = 0


class StepObserver:
    """The marks of one process.

    Args:
        hook: the recorder.
        directory: of the log.
        steps: as for `Stopping`.
        decides: whether this rank decides for all when to stop.
        stop: ends the process.
    """

    def __init__(self, hook: Hook, directory: Path, steps: int | None, decides: bool, stop: Callable[[], None]) -> None:
        self.hook = hook
        self.tree = LoopTree()
        self.trained_elements = 0  # parameters that the largest model trains on this rank
        self.end: Stop | None = None  # the decision that ended the script
        self._log = LogView(directory)
        self._writer = MarkWriter(directory)
        self._positions = LoopPositions()
        self._is_framework_updating = False  # an engine will update parameters
        self._stopping = Stopping(
            steps,
            decides,
            directory.parent,
            self._log.digest,
            self._expects_update,
            lambda: self._is_framework_updating,
        )
        self._stop = stop
        # Number of records and `now_ns` where a loop has begun another iteration, and behind each update.
        self._boundaries: list[tuple[int, int]] = []
        self._updates = 0  # serial of STEP records
        self._versions: dict[int, int] = {}  # id(module) -> sum of versions of some of its parameters
        self._called: tuple[int, list[torch.nn.Parameter]] | None = (
            None  # the model in training, its sample of parameters
        )
        self._reads = BatchReads()
        self.is_in_model = False  # an outermost module has been called and has not returned
        self._recorded: _Recorded | None = None  # while a CUDA graph is captured
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def install(self) -> None:
        """Observe backward passes, data loaders and CUDA graphs."""
        _call_before(torch.autograd, "backward", lambda *args, **options: self.mark(Event.BACKWARD))
        _call_before(torch.autograd, "grad", self._gradients_asked)
        _call_before(
            dataloader._BaseDataLoaderIter,
            "__next__",
            lambda loader, **options: self.mark(Event.DATA, target=id(loader)),
        )
        _call_before(
            torch.optim.Optimizer, "__init__", lambda optimizer, *args, **options: self._optimizers.add(optimizer)
        )
        self._watch_graphs()

    def model_called(self, module: torch.nn.Module, parameters: list[torch.nn.Parameter]) -> None:
        """An outermost module is called."""
        self.is_in_model = True
        has_gradients = torch.is_grad_enabled()
        is_changed = False
        if has_gradients:
            trained = [parameter for parameter in parameters if parameter.requires_grad]
            if id(module) not in self._versions:
                self.trained_elements = max(self.trained_elements, elements_of(trained))
            sample = trained[:1] + trained[len(trained) // 2 :][:1] + trained[-1:]
            version = _version_of(sample)
            is_changed = self._versions.get(id(module), version) != version
            self._called = id(module), sample
            self._versions[id(module)] = version
            self._reads.model_called(is_changed)
        self.mark(Event.MODEL, has_gradients, is_changed, target=id(module))

    def model_returned(self, tokens: int, samples: int, batch: torch.Tensor | None = None) -> None:
        """The model has returned; the numbers are those of its input, and ``batch`` is the tensor that has them."""
        if self._called is not None:  # what a model changes itself, as embeddings with a max_norm do, is no update
            module, sample = self._called
            self._versions[module], self._called = _version_of(sample), None
        if batch is not None and self._reads.is_again(batch):
            return
        if self._recorded is not None:
            self._recorded.tokens += tokens
            self._recorded.samples += samples
        else:
            self.mark(Event.INPUT, tokens, samples, target=_SAME)

    def model_reset(self) -> None:
        """Another module is taken to be the model."""
        self.mark(Event.RESET, target=_SAME)

    def update_begins(self, target: object = None) -> None:
        """An optimizer begins to step; ``target`` as in `mark`."""
        if not _is_capturing():
            self.mark(Event.OPTIMIZER, target=target)

    def updated(self, elements: int | None = None, *, target: object = None) -> None:
        """An optimizer of so many parameters has stepped; None: a framework's, of all that train.

        ``target`` as in `mark`.
        """
        if _is_capturing():
            if self._recorded is not None:
                self._recorded.has_update = True
            return
        is_small = elements is not None and self._is_small(elements)
        if not is_small:
            self._reads.updated()
        self.hook.step(self._updates)
        self._updates += 1
        self.mark(Event.UPDATE, self._updates - 1, is_small, target=target)

    def expect_update(self) -> None:
        """A framework's engine will update parameters, whatever its optimizer holds between its steps."""
        self._is_framework_updating = True

    def _is_small(self, elements: int) -> bool:
        """Whether an optimizer of so many parameters is no sign of a step."""
        world_size = torch.distributed.get_world_size() if _is_distributed() else 1
        return elements < _SMALL_SHARE * self.trained_elements / world_size

    def _expects_update(self) -> bool:
        """Whether there is an optimizer of parameters."""
        if self._is_framework_updating:
            return True
        for optimizer in list(self._optimizers):
            groups = getattr(optimizer, "param_groups", ())  # none while it is being made
            elements = elements_of(parameter for group in groups for parameter in group["params"])
            if elements and not self._is_small(elements):
                return True
        return False

    def mark(self, event: Event, first: int = 0, second: int = 0, *, target: object = None) -> None:
        """Leave a mark.

        Args:
            event: what happens.
            first: its first number.
            second: its second number.
            target: what it happens to, as for `LoopPositions.now`; `_SAME`: it is part of the last event.
        """
        start = now_ns()
        if self._recorded is not None:
            self._recorded.has_backward |= event is Event.BACKWARD
        position = self._positions.last() if target is _SAME else self._positions.now((event, target))
        records = self._log.count() - (event is Event.UPDATE)  # before its STEP record
        mark = Mark(records, event, position, int(first), int(second))
        self._writer.write(mark)
        advanced = self.tree.add(mark)
        if advanced or event is Event.UPDATE:
            self._boundaries.append((records + (event is Event.UPDATE), start))
        end = self._stopping.after_iteration(self.tree, advanced) if advanced else None
        if event is Event.UPDATE and not mark.position.nest:
            end = end or self._stopping.after_update(self.tree)
        self.hook.add_own_time(now_ns() - start)
        if end is not None:
            self.end = end
            self._stop()

    def finish(self) -> Stop:
        """The decision about the script's steps, now that it ends."""
        return self.end or self._stopping.at_end(self.tree)

    def step_end_ns(self) -> list[int]:
        """When each step of the script has ended, on the clock `now_ns`; for a script that ends now."""
        loop = loop_of_steps(self.tree, self.end)
        end_records = self.tree.update_ends if loop is self.tree.root else loop.step_ends()
        if self.end and self.end.steps:
            end_records = end_records[: self.end.steps]
        indices = [bisect.bisect_left(self._boundaries, (records, 0)) for records in end_records]
        return [self._boundaries[index][1] for index in indices if index < len(self._boundaries)]

    def _gradients_asked(self, outputs: Any, inputs: Any, *args: Any, **options: Any) -> None:
        """Gradients are asked for: those of parameters are a backward pass, those of inputs the model's own work."""
        elements = inputs if isinstance(inputs, Collection) and not isinstance(inputs, torch.Tensor) else (inputs,)
        tensors = [element for element in elements if isinstance(element, torch.Tensor)]  # not edges of the graph
        if any(isinstance(tensor, torch.nn.Parameter) or is_gradtrackingtensor(tensor) for tensor in tensors):
            self.mark(Event.BACKWARD)

    def _watch_graphs(self) -> None:
        graphs: dict[int, _Recorded] = {}  # by id of a graph

        def begin(graph: Any, *args: Any, **options: Any) -> None:
            self._recorded = _Recorded()

        def end(graph: Any, *args: Any, **options: Any) -> None:
            if self._recorded is not None:
                graphs[id(graph)], self._recorded = self._recorded, None

        def replay(graph: Any, *args: Any, **options: Any) -> None:
            recorded = graphs.get(id(graph), _Recorded())
            self.mark(Event.REPLAY, recorded.has_backward, target=id(graph))
            if recorded.samples and not self.is_in_model:
                self.model_returned(recorded.tokens, recorded.samples)

        def replayed(graph: Any, *args: Any) -> None:
            if graphs.get(id(graph), _Recorded()).has_update:
                self.updated(target=_SAME)

        _call_before(torch.cuda.CUDAGraph, "capture_begin", begin)
        for name in ("capture_end", "capture_end_pre"):  # the second from PyTorch 2.15 on
            if hasattr(torch.cuda.CUDAGraph, name):
                _call_before(torch.cuda.CUDAGraph, name, end)
        _call_before(torch.cuda.CUDAGraph, "replay", replay, after=replayed)


def elements_of(parameters: Iterable[torch.Tensor]) -> int:
    """Number of elements of some parameters."""
    return sum(parameter.numel() for parameter in parameters)


def _is_capturing() -> bool:
    """Whether a CUDA graph is being captured."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _version_of(parameters: list[torch.nn.Parameter]) -> int:
    """A number that grows with each change of the parameters in place."""
    return sum(parameter._version for parameter in parameters)


def _call_before(
    owner: Any, name: str, observe: Callable[..., None], after: Callable[..., None] = lambda *args: None
) -> None:
    """Call ``observe`` before each call of a function or method, with its arguments, and ``after`` after it."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        observe(*args, **kwargs)
        result = function(*args, **kwargs)
        after(*args)
        return result

    setattr(owner, name, observed)
