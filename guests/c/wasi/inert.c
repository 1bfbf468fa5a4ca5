// A guest that uses functions of the C library that reach outside, without a grant.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "callbox.h"
#include "callbox_wasi.h"

CALLBOX_DEFINE_REALLOC
CALLBOX_DEFINE_INERT_WASI

// The mode is the only element of the operand.
static int32_t mode_of(const callbox_call_frame *frame) {
  return *(const int32_t *)frame->operands.data[0].data;
}

// s32[] to s32[2]: what the C library answers, for each mode.
CALLBOX_TARGET(outside) {
  if (!callbox_check_counts(frame, 1, 1)) return CALLBOX_INVALID_ARGUMENT;
  const callbox_buffer *x = &frame->operands.data[0], *y = &frame->results.data[0];
  if (!callbox_check_buffer(x, CALLBOX_S32, 0) || !callbox_check_buffer(y, CALLBOX_S32, 1))
    return CALLBOX_INVALID_ARGUMENT;
  if (y->size != 2 * sizeof(int32_t)) return CALLBOX_INVALID_ARGUMENT;
  int32_t *found = (int32_t *)y->data, mode = mode_of(frame);
  assert(mode != 1 && "a mode that may be");
  if (mode == 2) exit(3);
  if (mode == 3) abort();
  found[0] = printf("to stdout\n") == 10 && fflush(stdout) == 0;
  found[0] += fputs("to stderr\n", stderr) >= 0;
  found[1] = (getenv("HOME") != NULL) + (fopen("/etc/passwd", "r") != NULL) + (time(NULL) > 0);
  return CALLBOX_OK;
}
