// The CUDA example of the documents on XLA custom calls, "Custom-call on GPU". The documents have
// one file for nvcc. Here the kernel is in do_custom_call.cu, and is launched through the driver.
#include "callbox_cuda.h"

static const char ptx[] = {
#embed "do_custom_call.ptx"
    , 0};

static struct callbox_cuda_image image = CALLBOX_CUDA_IMAGE(ptx);

void do_custom_call(CUstream stream, void** buffers, const char* opaque, size_t opaque_len) {
  const float* in0 = (const float*)buffers[0];
  const float* in1 = (const float*)buffers[1];
  float* out = (float*)buffers[2];
  (void)opaque, (void)opaque_len;

  const int64_t block_dim = 64;
  const int64_t grid_dim = 2048 / block_dim;
  void* parameters[] = {&in0, &in1, &out};
  callbox_cuda_launch(&image, "custom_call_kernel", grid_dim, block_dim, stream, parameters, NULL);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "CUDA");
