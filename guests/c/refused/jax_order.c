// expected error: which of `outputs` and `inputs` the function takes first
#include "jax_ffi.h"

void add_n(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **inputs,
           void **outputs) {
  (void)api, (void)status;
  *(float *)outputs[0] = *(float *)inputs[0] + *(float *)static_info;
}
JAX_FFI_EXPORT(add_n);
