// A guest that uses wasi-libc and its allocator. `cargo xtask guests` checks that it imports
// nothing of WASI.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "callbox.h"

CALLBOX_DEFINE_REALLOC

// f32[n] to f32[n]: the exponential of each element, through a copy.
CALLBOX_TARGET(exponential) {
  if (!callbox_check_counts(frame, 1, 1)) return CALLBOX_INVALID_ARGUMENT;
  const callbox_buffer *x = &frame->operands.data[0], *y = &frame->results.data[0];
  if (!callbox_check_buffer(x, CALLBOX_F32, 1) || !callbox_check_buffer(y, CALLBOX_F32, 1))
    return CALLBOX_INVALID_ARGUMENT;
  if (x->size != y->size)
    return callbox_fail(CALLBOX_INVALID_ARGUMENT, "expected a result of the operand's size");
  float *copy = (float *)malloc(x->size);
  if (copy == NULL && x->size != 0)
    return callbox_fail(CALLBOX_RESOURCE_EXHAUSTED, "there is no memory for a copy");
  memcpy(copy, x->data, x->size);
  for (uint32_t i = 0; i < x->size / sizeof *copy; i++) ((float *)y->data)[i] = expf(copy[i]);
  free(copy);
  return CALLBOX_OK;
}
