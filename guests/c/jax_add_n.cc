// The example of the JAX FFI proposal, `add_n`, as it has it but for its includes, for what Python and pybind11 do there, and for its mistakes:
//
// - its first listing takes `inputs` before `outputs`. All that it says of such functions afterwards has `outputs` first, and so has this;
// - it exposes `add_one` where it defines `add_n`.
#include "jax_ffi.h"  // Header that comes from JAX

struct Info {
  float n;
};

extern "C" void add_n(JaxFFI_API* api, JaxFFIStatus* status,
                      void* static_info, void** outputs, void** inputs) {
  Info* info = (Info*) static_info;
  if (info->n < 0) {
    JaxFFIStatusSetFailure(api, status, "Info must be >= 0");
    return;
  }
  float* input = (float*) inputs[0];
  float* output = (float*) outputs[0];
  *output = *input + info->n;
}
JAX_FFI_EXPORT(add_n);

CALLBOX_METADATA({
  "name": "add_n", "api_version": "API_VERSION_JAX_FFI", "ffi_version": "1.0", "traits": ["pure"],
  "doc": "Adds the number n of the static information, an f32."
})

// The guest has no C++ library: `new` takes from here. There are as many places as call sites may have objects at one time, so that one that is
// not taken back shows.
namespace {
struct Place {
  alignas(8) unsigned char bytes[8];
  bool taken;
};
Place places[4];
}  // namespace

void* operator new(size_t size) {
  for (Place& place : places) {
    if (!place.taken && size <= sizeof place.bytes) {
      place.taken = true;
      return place.bytes;
    }
  }
  __builtin_trap();
}

void operator delete(void* object) noexcept {
  for (Place& place : places) {
    if (place.taken && place.bytes == object) {
      place.taken = false;
      return;
    }
  }
  __builtin_trap();  // It is deleted twice, or is not from here.
}

void operator delete(void* object, size_t) noexcept { operator delete(object); }

// "Exposing static information to Python via a pointer (pass by reference)": `make_info` of the number, and what the capsule's destructor does.
extern "C" void* make_info(const void* data, size_t size) {
  if (size != sizeof(float)) return nullptr;
  Info* info = new Info();
  __builtin_memcpy(&info->n, data, sizeof(float));
  return info;
}

extern "C" void delete_info(void* ptr) {
  delete reinterpret_cast<Info*>(ptr);
}
JAX_FFI_EXPORT_STATIC_INFO(make_info, delete_info);
