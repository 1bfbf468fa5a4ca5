// The example "Tuples in GPU custom-calls" of the newer documents: `buffers` is an array of six
// device pointers, one for each leaf. Parameter 0 is (f32[32], (f32[64], f32[128]), f32[256]), the
// result is (f32[512], f32[1024]), and its f32[1024] is a temp buffer.
#include "callbox_cuda.h"

static const char ptx[] = {
#embed "do_custom_call.ptx"
    , 0};

static struct callbox_cuda_image image = CALLBOX_CUDA_IMAGE(ptx);

void do_custom_call(CUstream stream, void** buffers, const char* opaque, size_t opaque_len) {
  (void)opaque, (void)opaque_len;
  void* subbuf0 = buffers[0];
  void* subbuf1 = buffers[1];
  void* subbuf2 = buffers[2];
  void* subbuf3 = buffers[3];
  void* output_subbuf0 = buffers[4];
  void* temp = buffers[5];

  void* parameters[] = {&subbuf0, &subbuf1, &subbuf2, &subbuf3, &output_subbuf0, &temp};
  callbox_cuda_launch(&image, "tuples_kernel", 512 / 64, 64, stream, parameters, NULL);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "CUDA");
