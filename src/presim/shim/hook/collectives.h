// The PyTorch collective that the current thread calls: its call site and its group.
#pragma once
#include <cstdint>

#include "process_group.h"

namespace presim::hook {

// Sets the callback for the call site of every collective.
void ask_call_sites(CallSite ask);

// Descriptor id of "group name=… ranks=…", after asking for the call site; -1 outside a collective.
int32_t collective_group();

}  // namespace presim::hook
