"""Which calls of PyTorch's operators do the work of a memory-bound signature: operands as data, without torch.

A module for each family proposes calls from the bytes, elements and type of a signature, all of them plain: contiguous,
nothing expanded. Kept are those of which a capture would say just what was asked for (`call.gives`). Several are left
where the bytes do not tell how an operand lies: all are measured, and a row's spread has what they differ by.
"""

from presim.profile.calls.call import FLOATS as FLOATS
from presim.profile.calls.call import Call as Call
from presim.profile.calls.families import calls as calls
from presim.profile.calls.families import is_known as is_known
