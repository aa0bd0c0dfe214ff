// The collective of PyTorch's that the current thread calls: from which line, and among whom.
#pragma once
#include <cstdint>

#include "process_group.h"

namespace presim::hook {

// Ask this for the line of every collective.
void ask_call_sites(CallSite ask);

// Descriptor id of "group name=… ranks=…"; -1: the thread is in none. The line is asked for, too.
int32_t collective_group();

}  // namespace presim::hook
