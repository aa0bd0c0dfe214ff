// What the host knows to have ended without asking: its own waits and earlier answers tell it. Recordings on one stream
// end in the order of their serials.
#pragma once
#include <cstdint>

namespace presim {

// All recordings of the stream, or of all streams, up to a serial have ended.
void saw_end(uint16_t stream, int64_t serial);
void saw_end_of_all(int64_t serial);
bool has_seen_end(uint16_t stream, int64_t serial);

}  // namespace presim
