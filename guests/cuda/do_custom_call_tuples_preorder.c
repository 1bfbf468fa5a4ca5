// The example "Tuples in GPU custom-calls" of the oldest document: `buffers` is an array of nine
// device pointers, one for each sub-buffer in preorder. Those of the input may be null. The target
// fills the table of the output.
//
// Two mistakes of the document are corrected: null pointers are read from the table around them (it
// reads `subtuple` from buffers[2], which is null), and subbuf3 is read as well.
#include "callbox_cuda.h"

static const char ptx[] = {
#embed "do_custom_call.ptx"
    , 0};

static struct callbox_cuda_image image = CALLBOX_CUDA_IMAGE(ptx);

// Enqueues the copy of an element of a tuple's table, if it is null.
static bool find(void** element, const void* tuple, int index, CUstream stream, bool* needs_sync, const struct callbox_cuda_driver* driver) {
  if (*element != NULL) return true;
  *needs_sync = true;
  CUdeviceptr from = (CUdeviceptr)(uintptr_t)((void* const*)tuple + index);
  return callbox_cuda_ok(driver->cuMemcpyDtoHAsync(element, from, sizeof(void*), stream), "cuMemcpyDtoHAsync", NULL);
}

static bool wait(CUstream stream, bool* needs_sync, const struct callbox_cuda_driver* driver) {
  if (!*needs_sync) return true;
  *needs_sync = false;
  return callbox_cuda_ok(driver->cuStreamSynchronize(stream), "cuStreamSynchronize", NULL);
}

void do_custom_call(CUstream stream, void** buffers, const char* opaque, size_t opaque_len) {
  (void)opaque, (void)opaque_len;
  const struct callbox_cuda_driver* driver = callbox_cuda_driver_or_fail(NULL);
  if (driver == NULL) return;

  bool needs_sync = false;
  void* subbuf0 = buffers[1];
  void* subtuple = buffers[2];
  void* subbuf3 = buffers[5];
  if (!find(&subbuf0, buffers[0], 0, stream, &needs_sync, driver)) return;
  if (!find(&subtuple, buffers[0], 1, stream, &needs_sync, driver)) return;
  if (!find(&subbuf3, buffers[0], 2, stream, &needs_sync, driver)) return;
  // Wait for copies enqueued above to complete.
  if (!wait(stream, &needs_sync, driver)) return;

  // Now that we have `subtuple`, we can get subbuf1 and subbuf2.
  void* subbuf1 = buffers[3];
  void* subbuf2 = buffers[4];
  if (!find(&subbuf1, subtuple, 0, stream, &needs_sync, driver)) return;
  if (!find(&subbuf2, subtuple, 1, stream, &needs_sync, driver)) return;
  // Wait for copies enqueued above to complete.
  if (!wait(stream, &needs_sync, driver)) return;

  // ... actually run the kernel ...
  void* parameters[] = {&subbuf0, &subbuf1, &subbuf2, &subbuf3, &buffers[7], &buffers[8]};
  if (!callbox_cuda_launch(&image, "tuples_kernel", 512 / 64, 64, stream, parameters, NULL)) return;

  // Fill the output tuple. This waits, so that the copy completes before `outputs` goes out of
  // scope: the document's first way. A kernel that takes the pointers as parameters need not wait
  // (callbox_cuda_tuples.h).
  void* outputs[2] = {buffers[7], buffers[8]};
  callbox_cuda_write(buffers[6], outputs, sizeof outputs, stream, NULL);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call, "CUDA");
