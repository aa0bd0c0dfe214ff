// Queries of events and streams: what a host that runs ahead of its device would see. The launcher simulates the log up to
// the query.
#pragma once
#include <cstdint>

namespace presim {

// Whether a recording, or all work of a stream, has ended at the host's time. True where nobody simulates, because the
// device then takes no time, and to NCCL's watchdogs.
bool recording_has_ended(uint16_t stream, int64_t serial);
bool stream_has_ended(uint16_t stream);

}  // namespace presim
