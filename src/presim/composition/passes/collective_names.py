"""Names of the communication operators that passes insert into a graph."""

from __future__ import annotations

PREFIX = "comm::"
ALL_REDUCE = "comm::all_reduce"  # in place, on the communication stream
ALL_GATHER = "comm::all_gather"  # from an input to an output, like reduce-scatter and all-to-all
ALL_TO_ALL = "comm::all_to_all"  # from an input to an output
DISPATCH = "comm::dispatch"  # from tokens, their experts and weights to those that a rank's experts get
COMBINE = "comm::combine"  # the way back, summed by token
SEND_RECV = "comm::send_recv"  # send inputs to the next rank, receive outputs from the previous one
REDUCE_SCATTER = "comm::reduce_scatter"
WAIT = "comm::wait"  # the compute stream waits for the communication started on a value
