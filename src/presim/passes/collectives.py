"""Names of the operators of communication that passes put into a graph."""

from __future__ import annotations

PREFIX = "comm::"
ALL_REDUCE = "comm::all_reduce"  # in place, on the stream of collectives
ALL_GATHER = "comm::all_gather"  # as the reduce-scatter, from an input to an output
ALL_TO_ALL = "comm::all_to_all"  # likewise
SEND_RECV = "comm::send_recv"  # to the next rank, from the one before: each input becomes an output
REDUCE_SCATTER = "comm::reduce_scatter"
WAIT = "comm::wait"  # the compute stream waits for what was begun on a value
