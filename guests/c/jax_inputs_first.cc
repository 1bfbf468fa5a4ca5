// The first listing of the JAX FFI proposal, as it stands there: inputs before outputs.
// `jax_add_n.cc` has the order of the proposal's other listings.
#include "jax_ffi.h"

struct Info {
  float n;
};

extern "C" void add_n(JaxFFI_API* api, JaxFFIStatus* status,
                      void* static_info, void** inputs, void** outputs) {
  Info* info = (Info*) static_info;
  if (info->n < 0) {
    JaxFFIStatusSetFailure(api, status, "Info must be >= 0");
    return;
  }
  float* input = (float*) inputs[0];
  float* output = (float*) outputs[0];
  *output = *input + info->n;
}
JAX_FFI_EXPORT_INPUTS_FIRST(add_n);
