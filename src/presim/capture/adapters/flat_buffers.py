"""Name the flat buffers in which frameworks keep parameters and gradients.

Modules and optimizers only show views of some of them. The rest would count as activations or as other memory: buffers
that no module uses, and all of them while the framework builds them, which is when a job that is too large runs out of
memory.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from presim.capture.script.after_import import when_imported
from presim.trace.schema import BUCKETS, Category

if TYPE_CHECKING:
    from presim.capture.script.hook import Hook

# Module -> class -> its attributes with tensors, in lists and dictionaries, by what they hold. Copies in fp32 are
# parameters.
_ZERO_12 = {
    Category.PARAMETER: ("bit16_groups_flat", "single_partition_of_fp32_groups"),
    Category.GRADIENT: ("averaged_gradients", "all_grad_tensors", "grads_in_partition"),
}
_ZERO_3 = {
    Category.PARAMETER: ("fp16_partitioned_groups_flat", "fp32_partitioned_groups_flat", "lp_param_buffer"),
    Category.GRADIENT: ("grad_partitions_flat_buffer", "averaged_gradients"),
    Category.COMMUNICATION: ("ipg_buckets",),
}
_BF16 = {
    Category.PARAMETER: ("bf16_groups_flat", "fp32_groups_flat_partition"),
    Category.GRADIENT: ("fp32_groups_gradients_flat", "fp32_groups_gradient_flat_partition"),
}
_FP16 = {Category.PARAMETER: ("fp16_groups_flat", "fp32_groups_flat")}
_MEGATRON = {Category.PARAMETER: ("param_data",), Category.GRADIENT: ("grad_data",)}
_OWNERS: dict[str, dict[str, Mapping[Category, tuple[str, ...]]]] = {
    "deepspeed.runtime.zero.stage_1_and_2": {"DeepSpeedZeroOptimizer": _ZERO_12},
    "deepspeed.runtime.zero.stage3": {"DeepSpeedZeroOptimizer_Stage3": _ZERO_3},
    "deepspeed.runtime.bf16_optimizer": {"BF16_Optimizer": _BF16},
    "deepspeed.runtime.fp16.fused_optimizer": {"FP16_Optimizer": _FP16},
    "megatron.core.distributed.param_and_grad_buffer": {"_ParamAndGradBuffer": _MEGATRON},
}
_SETS_BUCKETS_UP = "setup_buckets"  # of ZeRO-1 and 2: in the backward pass, at whose end they are dropped


class FlatBuffers:
    """The owners of flat buffers, known from the start of their construction on."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self._owners: weakref.WeakKeyDictionary[Any, Mapping[Category, tuple[str, ...]]] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Watch the classes once the script has imported them."""
        for module, classes in _OWNERS.items():
            when_imported(module, functools.partial(self._watch, classes))
        when_imported("torch.nn.parallel.distributed", self._watch_buckets)

    def named(self) -> list[tuple[Category, Iterator[Any]]]:
        """The tensors that exist, by what they hold."""
        return [
            (category, _tensors([getattr(owner, name, None) for name in names]))
            for owner, attributes in list(self._owners.items())
            for category, names in attributes.items()
        ]

    def _watch(self, classes: Mapping[str, Mapping[Category, tuple[str, ...]]], module: Any) -> None:
        for name, attributes in classes.items():
            if owner_class := getattr(module, name, None):
                self._watch_class(owner_class, attributes)

    def _watch_class(self, owner_class: Any, attributes: Mapping[Category, tuple[str, ...]]) -> None:
        construct = owner_class.__init__

        @functools.wraps(construct)
        def watched(owner: Any, *args: Any, **kwargs: Any) -> None:
            self._owners[owner] = attributes
            construct(owner, *args, **kwargs)

        owner_class.__init__ = watched
        if method := getattr(owner_class, _SETS_BUCKETS_UP, None):
            setattr(owner_class, _SETS_BUCKETS_UP, self._in_scope(method))

    def _watch_buckets(self, module: Any) -> None:
        """DDP's buckets belong to its C++ code: they are known by the scope that allocates them."""
        for owner, name in (
            (module.DistributedDataParallel, "_ddp_init_helper"),
            (module.dist.Reducer, "_rebuild_buckets"),
        ):
            setattr(owner, name, self._in_scope(getattr(owner, name)))

    def _in_scope(self, function: Callable[..., Any]) -> Callable[..., Any]:
        scope = self._hook.scope_id(BUCKETS)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            self._hook.enter_named_scope(scope)
            try:
                return function(*args, **kwargs)
            finally:
                self._hook.leave_scope()

        return inside


def _tensors(value: Any, depth: int = 8) -> Iterator[Any]:
    """The tensors in a value: in lists, dictionaries and buckets."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part, depth - 1)
    elif depth and isinstance(value, dict):
        yield from _tensors(list(value.values()), depth - 1)
    elif depth and hasattr(value, "buffer"):  # a bucket of ZeRO, which also lists the parameters in it
        yield from _tensors(value.buffer, depth - 1)
