// The example of the JAX FFI proposal, `add_n`. The includes differ, the parts for Python and
// pybind11 are left out, and two mistakes are corrected:
//
// - the first listing takes `inputs` before `outputs`, and all other text `outputs` before
//   `inputs`. This is the second order; `jax_inputs_first.cc` has the first.
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
JAX_FFI_EXPORT_OUTPUTS_FIRST(add_n);

CALLBOX_METADATA({
  "name": "add_n", "api_version": "API_VERSION_JAX_FFI", "ffi_version": "1.0", "traits": ["pure"],
  "doc": "Adds the number n of the static information, an f32."
})

// The guest has no C++ library: `new` allocates from this array. It has as many places as call
// sites can have objects at a time, so that a leak shows.
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
  __builtin_trap();  // A double free, or an object from elsewhere.
}

void operator delete(void* object, size_t) noexcept { operator delete(object); }

// "Exposing static information to Python via a pointer (pass by reference)": `make_info`, which
// takes the number's bytes, and the body of the capsule's destructor.
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
