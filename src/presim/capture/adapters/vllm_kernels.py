"""Emulate Triton kernels with which vLLM's V2 model runner keeps request state and sampled tokens on the device.

Its scheduler reads ``num_sampled``; if that stayed zero, no request would end. Names and meaning follow vLLM 0.33
(vllm/v1/worker/gpu/input_batch.py and buffer_utils.py). ``idx_mapping`` maps rows of a batch to requests.
"""

from __future__ import annotations

from typing import Any

from presim.capture.device_values.triton import emulates


def install() -> None:
    """Does nothing: importing this module registers the emulations."""


@emulates("_get_num_sampled_and_rejected_kernel", writes=("num_rejected_ptr",), updates=("num_sampled_ptr",))
def num_sampled_and_rejected(a: Any) -> None:
    """Requests with an unfinished prompt have sampled nothing; for others, the remaining logits were rejected."""
    rows = a.num_rejected_ptr.shape[0]
    requests = a.idx_mapping_ptr[:rows].long()
    prompt_done = a.seq_lens_ptr[:rows] >= a.prefill_len_ptr[requests]
    logits = a.cu_num_logits_ptr[: rows + 1].diff()
    sampled = a.num_sampled_ptr[:rows] * prompt_done
    a.num_sampled_ptr[:rows] = sampled
    a.num_rejected_ptr[:rows] = (logits - sampled) * prompt_done


@emulates("_prepare_pos_seq_lens_kernel", writes=("pos_ptr", "seq_lens_ptr"))
def positions_and_lengths(a: Any) -> None:
    """Each request continues at its position; rows beyond the batch have length zero."""
    rows = a.idx_mapping_ptr.shape[0]
    computed = a.num_computed_tokens_ptr[a.idx_mapping_ptr.long()]
    starts = a.query_start_loc_ptr[: rows + 1]
    a.seq_lens_ptr.zero_()
    a.seq_lens_ptr[:rows] = computed + starts.diff()
    for row, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist())):
        first = int(computed[row])
        a.pos_ptr[start:end] = a.pos_ptr.new_tensor(range(first, first + end - start))


@emulates("_post_update_num_computed_tokens_kernel", updates=("num_computed_tokens_ptr",))
def advance_without_sampling(a: Any) -> None:
    """Advance requests by the tokens of this batch."""
    rows = a.idx_mapping_ptr.shape[0]
    a.num_computed_tokens_ptr[a.idx_mapping_ptr.long()] += a.query_start_loc_ptr[: rows + 1].diff()


@emulates(
    "_post_update_kernel",
    updates=("num_computed_tokens_ptr", "last_sampled_tokens_ptr", "total_len_ptr"),
    ignores=("all_token_ids_ptr", "output_bin_counts_ptr", "draft_tokens_ptr", "draft_tokens_out_ptr"),
)
def advance(a: Any) -> None:
    """Extend requests by their sampled tokens, and advance them by the batch's tokens minus rejected ones.

    The tables of token ids are not updated: they are large and control nothing.
    """
    for row, request in enumerate(a.idx_mapping_ptr.tolist()):
        if request < 0:
            continue
        count, length = int(a.num_sampled_ptr[row]), int(a.total_len_ptr[request])
        tokens = a.sampled_tokens_ptr[row, :count]
        if count:
            a.last_sampled_tokens_ptr.view(-1)[request] = tokens[-1]
            a.total_len_ptr[request] = length + count
        queried = 0 if a.query_start_loc_ptr is None else int(a.query_start_loc_ptr[row : row + 2].diff())
        a.num_computed_tokens_ptr[request] += queried - int(a.num_rejected_ptr[row])


@emulates("_expand_idx_mapping_kernel", writes=("expanded_idx_mapping_ptr", "expanded_local_pos_ptr"))
def expand(a: Any) -> None:
    """One row per logit: its request, and its index within the request."""
    bounds = a.cu_num_logits_ptr.tolist()
    for row, request in enumerate(a.idx_mapping_ptr.tolist()):
        start, end = bounds[row], bounds[row + 1]
        a.expanded_idx_mapping_ptr[start:end] = request
        a.expanded_local_pos_ptr[start:end] = a.expanded_local_pos_ptr.new_tensor(range(end - start))


@emulates("_apply_write_kernel", updates=("output_ptr",), unless="MULTI_GROUP")  # MULTI_GROUP: a table of addresses
def staged_writes(a: Any) -> None:
    """The host's changes to a table on the device, each to a range of one row."""
    segment_ends = a.write_cu_lens_ptr.tolist()
    rows = a.output_ptr.view(a.output_ptr.shape[0], -1)
    for start, end, row, column in zip(
        [0, *segment_ends], segment_ends, a.write_indices_ptr.tolist(), a.write_starts_ptr.tolist()
    ):
        rows[row, column : column + end - start] = a.write_contents_ptr[start:end]
