"""Errors: what the user can mend is told apart from what is our bug.

Library code raises, only the command line prints. A message shows the numbers and ends with what to do next.
"""

from __future__ import annotations


class PresimError(Exception):
    """Whatever presim raises on purpose."""


class InputError(PresimError):
    """What was handed in cannot be used: a file, an option, a script. The message says how to mend it."""


class CaptureError(PresimError):
    """The script could not be run on the emulated device, or left nothing behind to price."""
