// The documents' example "Signalling an error" for GPUs, with code in place of its comments.
#include <string.h>

#include "callbox_cuda.h"

static const char ptx[] = {
#embed "do_custom_call.ptx"
    , 0};

static struct callbox_cuda_image image = CALLBOX_CUDA_IMAGE(ptx);

void do_custom_call(CUstream stream, void** buffers, const char* opaque, size_t opaque_len, XlaCustomCallStatus* status) {
  (void)opaque, (void)opaque_len;
  // ... do some work: the condition depends on a value in device memory, which takes "an expensive
  // synchronous device-to-host memcpy".
  float in;
  if (!callbox_cuda_read(&in, buffers[0], sizeof in, stream, status)) return;
  bool bad_condition = in < 0;

  if (bad_condition) {
    const char* error_message = "An error occurred";
    XlaCustomCallStatusSetFailure(status, error_message, strlen(error_message));
    return;
  }

  // ... continue.
  void* parameters[] = {&buffers[0], &buffers[1]};
  callbox_cuda_launch(&image, "continue_kernel", 1, 1, stream, parameters, status);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "CUDA");

// "For custom calls that cannot fail, simply add the new XlaCustomCallStatus* parameter and ignore
// it."
void ignores_status(CUstream stream, void** buffers, const char* opaque, size_t opaque_len, XlaCustomCallStatus* status) {
  (void)opaque, (void)opaque_len, (void)status;
  void* parameters[] = {&buffers[0], &buffers[1]};
  callbox_cuda_launch(&image, "copy_kernel", 1, 1, stream, parameters, NULL);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(ignores_status, "CUDA");
