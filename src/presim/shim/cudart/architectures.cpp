#include "architectures.h"

#include <cstdint>
#include <cstring>

namespace presim::cudart {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kImageMagic = 0xba55ed50;

struct Wrapper {
  uint32_t magic, version;
  const char* image;
};

struct ImageHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of all entries
};

// The start of an entry: PTX or machine code for one architecture.
struct Entry {
  uint16_t kind, unused;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, also_unused;
  uint16_t minor, major;  // of the entry's format
  uint32_t architecture;
};
static_assert(sizeof(Entry) == 32);

template <class T>
T read(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

int architecture_for(const void* image, int device) {
  if (image == nullptr) return device;
  auto wrapper = read<Wrapper>(static_cast<const char*>(image));
  if (wrapper.magic != kWrapperMagic || wrapper.image == nullptr) return device;
  auto header = read<ImageHeader>(wrapper.image);
  if (header.magic != kImageMagic) return device;
  int best = 0;
  const char* position = wrapper.image + header.header_bytes;
  const char* end = position + header.bytes;
  while (position + sizeof(Entry) <= end) {
    auto entry = read<Entry>(position);
    if (entry.header_bytes < sizeof(Entry)) break;
    int architecture = int(entry.architecture);
    if (architecture <= device && architecture > best) best = architecture;
    position += entry.header_bytes + entry.bytes;
  }
  return best != 0 ? best : device;
}

}  // namespace presim::cudart
