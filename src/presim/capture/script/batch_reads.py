"""Whether the model reads a batch again within one step, as sharpness-aware minimisation (SAM) does.

Its second pass takes the same tensor with other parameters, which the script changed itself. An optimizer's update ends
the step; a script that repeats one tensor for want of data reads it anew behind that, or with the same parameters.
"""

from __future__ import annotations

import weakref

import torch


class BatchReads:
    """What the model has read since the last update of the parameters."""

    def __init__(self) -> None:
        self._batch: weakref.ref[torch.Tensor] | None = None  # read first since the last update, or since another batch
        self._version = -1  # of its values
        self._is_changed = False  # the parameters have changed since

    def model_called(self, is_changed: bool) -> None:
        """The model is called. ``is_changed``: its parameters have changed since the last call."""
        self._is_changed |= is_changed

    def updated(self) -> None:
        """An optimizer has updated the parameters."""
        self._batch, self._is_changed = None, False

    def is_again(self, batch: torch.Tensor) -> bool:
        """Whether the model has just read a batch that it had read with other parameters."""
        version = -1 if batch.is_inference() else batch._version
        is_same = self._batch is not None and self._batch() is batch and version == self._version
        if not is_same:
            self._batch, self._version = weakref.ref(batch), version
            self._is_changed = False
        return is_same and self._is_changed
