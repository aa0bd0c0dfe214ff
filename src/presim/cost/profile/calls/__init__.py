"""Calls of PyTorch operators that do the work of a memory-bound signature: operands as data, without torch.

Each family's module proposes calls from the bytes, elements and type of a signature, with contiguous operands and
without expanded dimensions. Kept are those that a capture would record with the same signature (`call.matches`).
Several remain if the bytes leave the layout of an operand open: all are measured, and their differences are part of a
row's spread.
"""

from presim.cost.profile.calls.call import FLOATS as FLOATS
from presim.cost.profile.calls.call import Call as Call
from presim.cost.profile.calls.families import calls as calls
from presim.cost.profile.calls.families import is_known as is_known
