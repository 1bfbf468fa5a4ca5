// The documents' example "Passing tuples to custom-calls", which they give without a function for
// the platform "Host". Parameter 0 is (f32[32], (f32[64], f32[128]), f32[256]). The result is
// (f32[512], f32[1024]), of which the f32[1024] is a temp buffer ("Tuple outputs as temp buffers").
//
// For tuples, the documents declare `do_custom_call(const void** ins, void* out)`. The order is
// `(out, ins)`, as in their first example.
#include "custom_call.h"

// Element i of the result is the sum of the elements i of all leaves, each modulo the leaf's
// length.
void do_custom_call(void* out, const void** ins) {
  const void* const* p0 = reinterpret_cast<const void* const*>(ins[0]);
  const float* subbuf0 = reinterpret_cast<const float*>(p0[0]);
  const void* const* subtuple = reinterpret_cast<const void* const*>(p0[1]);
  const float* subbuf1 = reinterpret_cast<const float*>(subtuple[0]);
  const float* subbuf2 = reinterpret_cast<const float*>(subtuple[1]);
  const float* subbuf3 = reinterpret_cast<const float*>(p0[2]);

  void** output_tuple = reinterpret_cast<void**>(out);
  float* output_subbuf0 = reinterpret_cast<float*>(output_tuple[0]);
  float* temp = reinterpret_cast<float*>(output_tuple[1]);

  for (int i = 0; i < 512; ++i) {
    temp[i] = subbuf0[i % 32] + subbuf1[i % 64];
    temp[512 + i] = subbuf2[i % 128] + subbuf3[i % 256];
  }
  for (int i = 0; i < 512; ++i) {
    output_subbuf0[i] = temp[i] + temp[512 + i];
  }
}
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "Host");
