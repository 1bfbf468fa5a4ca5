// A guest that reads a file of the host through the C library. It needs a grant of a directory
// named /tables.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "callbox.h"

CALLBOX_DEFINE_REALLOC

// Returns the number at the beginning of a line. strtol would also need the compiler's runtime
// library.
static int32_t number(const char *text) {
  int32_t value = 0, sign = *text == '-' ? -1 : 1;
  for (text += *text == '-'; *text >= '0' && *text <= '9'; text++)
    value = value * 10 + (*text - '0');
  return sign * value;
}

// Nothing to s32[n]: the numbers in /tables/numbers.txt, one per line.
CALLBOX_TARGET(table) {
  if (!callbox_check_counts(frame, 0, 1)) return CALLBOX_INVALID_ARGUMENT;
  const callbox_buffer *y = &frame->results.data[0];
  if (!callbox_check_buffer(y, CALLBOX_S32, 1)) return CALLBOX_INVALID_ARGUMENT;
  const char *path = "/tables/numbers.txt";
  FILE *file = fopen(path, "r");
  if (file == NULL) return callbox_fail(CALLBOX_NOT_FOUND, strerror(errno));
  char line[32];
  uint32_t rows = 0, room = y->size / sizeof(int32_t);
  while (rows < room && fgets(line, sizeof line, file) != NULL)
    ((int32_t *)y->data)[rows++] = number(line);
  fclose(file);
  fputs("read ", stderr), fputs(path, stderr), fputs("\n", stderr);
  if (rows < room)
    return callbox_fail(CALLBOX_OUT_OF_RANGE, "expected a row for each element of the result");
  return CALLBOX_OK;
}

// Nothing to s32[]: whether /tables/numbers.txt can be opened for writing.
CALLBOX_TARGET(can_write) {
  if (!callbox_check_counts(frame, 0, 1)) return CALLBOX_INVALID_ARGUMENT;
  const callbox_buffer *y = &frame->results.data[0];
  if (!callbox_check_buffer(y, CALLBOX_S32, 0)) return CALLBOX_INVALID_ARGUMENT;
  FILE *file = fopen("/tables/numbers.txt", "a");
  *(int32_t *)y->data = file != NULL;
  if (file != NULL) fclose(file);
  return CALLBOX_OK;
}
