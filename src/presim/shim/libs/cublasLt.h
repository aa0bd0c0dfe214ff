// cuBLASLt's descriptors. Callers may have them on their stack (the *Init entries), so they must fit the opaque
// structs of the real library: 256 bytes for a product, 64 for the others. They have no constructor and own nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace presim::libs::lt {

// Position and size of an attribute in a descriptor.
struct Field {
  int attribute;
  uint16_t offset, bytes;
};

struct MatrixLayout {
  uint64_t rows, cols;
  int64_t ld, batch_offset;
  uint32_t type;
  int32_t order, batch_count, batch_mode;
  uint64_t plane_offset;
};
static_assert(sizeof(MatrixLayout) <= 64);

inline constexpr Field kLayoutFields[] = {
    {0, offsetof(MatrixLayout, type), 4},         {1, offsetof(MatrixLayout, order), 4},
    {2, offsetof(MatrixLayout, rows), 8},         {3, offsetof(MatrixLayout, cols), 8},
    {4, offsetof(MatrixLayout, ld), 8},           {5, offsetof(MatrixLayout, batch_count), 4},
    {6, offsetof(MatrixLayout, batch_offset), 8}, {7, offsetof(MatrixLayout, plane_offset), 8},
    {8, offsetof(MatrixLayout, batch_mode), 4},
};

struct MatmulDesc {
  uint64_t pointers[11];  // bias, aux, scales, amax, emulation: stored so that they can be read back
  int64_t strides[4];     // bias, aux ld, aux, alpha
  int32_t compute, scale_type, pointer_mode, transa, transb, transc, fill_mode, epilogue;
  int32_t sm_target, aux_type, bias_type;
  int32_t scale_modes[6];  // a, b, c, d, aux, d_out
  int8_t fast_accumulation;
};
static_assert(sizeof(MatmulDesc) <= 256);

#define PRESIM_FIELD(attribute, member) \
  Field { attribute, uint16_t(offsetof(MatmulDesc, member)), uint16_t(sizeof(MatmulDesc{}.member)) }
inline constexpr Field kMatmulFields[] = {
    PRESIM_FIELD(0, compute),         PRESIM_FIELD(1, scale_type),      PRESIM_FIELD(2, pointer_mode),
    PRESIM_FIELD(3, transa),          PRESIM_FIELD(4, transb),          PRESIM_FIELD(5, transc),
    PRESIM_FIELD(6, fill_mode),       PRESIM_FIELD(7, epilogue),        PRESIM_FIELD(8, pointers[0]),
    PRESIM_FIELD(10, strides[0]),     PRESIM_FIELD(11, pointers[1]),    PRESIM_FIELD(12, strides[1]),
    PRESIM_FIELD(13, strides[2]),     PRESIM_FIELD(14, strides[3]),     PRESIM_FIELD(15, sm_target),
    PRESIM_FIELD(17, pointers[2]),    PRESIM_FIELD(18, pointers[3]),    PRESIM_FIELD(19, pointers[4]),
    PRESIM_FIELD(20, pointers[5]),    PRESIM_FIELD(21, pointers[6]),    PRESIM_FIELD(22, aux_type),
    PRESIM_FIELD(23, pointers[7]),    PRESIM_FIELD(24, pointers[8]),    PRESIM_FIELD(25, fast_accumulation),
    PRESIM_FIELD(26, bias_type),      PRESIM_FIELD(31, scale_modes[0]), PRESIM_FIELD(32, scale_modes[1]),
    PRESIM_FIELD(33, scale_modes[2]), PRESIM_FIELD(34, scale_modes[3]), PRESIM_FIELD(35, scale_modes[4]),
    PRESIM_FIELD(36, pointers[9]),    PRESIM_FIELD(37, scale_modes[5]), PRESIM_FIELD(38, pointers[10]),
};
#undef PRESIM_FIELD

constexpr int kInvalidValue = 7;
constexpr int kGrouped = -1;  // batch_mode of a grouped layout: rows, cols and ld then are arrays on the device

template <size_t count>
const Field* find(const Field (&fields)[count], int attribute) {
  for (const Field& field : fields)
    if (field.attribute == attribute) return &field;
  return nullptr;
}

template <size_t count>
int set(void* descriptor, const Field (&fields)[count], int attribute, const void* value, size_t bytes) {
  const Field* field = find(fields, attribute);
  if (descriptor == nullptr || value == nullptr || field == nullptr || bytes < field->bytes) return kInvalidValue;
  std::memcpy(static_cast<char*>(descriptor) + field->offset, value, field->bytes);
  return 0;
}

template <size_t count>
int get(const void* descriptor, const Field (&fields)[count], int attribute, void* value, size_t bytes, size_t* written) {
  const Field* field = find(fields, attribute);
  if (descriptor == nullptr || field == nullptr) return kInvalidValue;
  if (written != nullptr) *written = field->bytes;
  if (bytes == 0 && written != nullptr) return 0;  // only the size is requested
  if (value == nullptr || bytes < field->bytes) return kInvalidValue;
  std::memcpy(value, static_cast<const char*>(descriptor) + field->offset, field->bytes);
  return 0;
}

}  // namespace presim::libs::lt
