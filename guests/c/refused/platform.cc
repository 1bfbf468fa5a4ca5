// expected error: a WebAssembly guest has targets of the platform "Host" only
#include "custom_call.h"

void do_custom_call(void* out, const void** in) { *reinterpret_cast<float*>(out) = *reinterpret_cast<const float*>(in[0]); }
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "CUDA");
