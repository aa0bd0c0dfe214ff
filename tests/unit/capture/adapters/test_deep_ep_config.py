"""DeepEP's tuning: default configurations and buffer sizes."""

from __future__ import annotations

import pytest

from presim.capture.adapters.deep_ep_config import Config, default_config


def test_default_windows_depend_on_the_number_of_ranks() -> None:
    dispatch, combine = default_config("dispatch", 8, 24), default_config("combine", 64, 20)
    assert (dispatch.num_sms, dispatch.num_max_nvl_chunked_send_tokens) == (24, 6)
    assert (combine.num_max_nvl_chunked_send_tokens, combine.num_max_rdma_chunked_recv_tokens) == (1, 128)


def test_unsupported_numbers_of_ranks_fail_as_in_the_library() -> None:
    with pytest.raises(AssertionError, match="Unsupported number of EP ranks: 12"):
        default_config("dispatch", 12, 20)


def test_buffers_hold_a_window_for_every_channel_and_peer() -> None:
    """With each token: its origin, 128 choices with weights and 128 factors. Network buffers are doubled."""
    config = Config(20, 6, 256, 20, 128)
    assert config.get_nvl_buffer_size_hint(1000, 4) == 10 * 4 * 256 * (1000 + 2056)
    assert config.get_nvl_buffer_size_hint(1000, 64) == 10 * 8 * 256 * (1000 + 2056)
    assert config.get_rdma_buffer_size_hint(1000, 8) == 0
    assert config.get_rdma_buffer_size_hint(1000, 16) == 2 * 10 * 2 * 140 * (1000 + 2072)  # whole windows of 20
