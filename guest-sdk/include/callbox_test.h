/* Calls targets in native tests, without a host:
 *
 *     #include "callbox_test.h"
 *
 *     #include "../src/scale.c"
 *
 *     int main(void) {
 *       float x[2] = {1, 2}, y[2], factor = 3;
 *       const int64_t size = 2;
 *       callbox_buffer operand = callbox_test_buffer(CALLBOX_F32, x, sizeof x, &size, 1);
 *       callbox_buffer result = callbox_test_buffer(CALLBOX_F32, y, sizeof y, &size, 1);
 *       callbox_attribute attribute =
 *           callbox_test_scalar("factor", CALLBOX_F32, &factor, sizeof factor);
 *       callbox_call_frame frame =
 *           callbox_test_frame(&operand, 1, &result, 1, &attribute, 1);
 *       return scale(&frame) != CALLBOX_OK || y[1] != 6;
 *     }
 *
 * One source file of a program includes this header, before any other of callbox's. Checks and
 * messages are those of the guest. The sandbox is missing, pointers have the machine's size, there
 * are no functions to call and no user data, and metadata and `CALLBOX_EXPORT` do nothing. The
 * mathematics of callbox_maths.h are the host's: a test that calls them does not link.
 */
#ifndef CALLBOX_TEST_H
#define CALLBOX_TEST_H

#include <stdio.h>
#include <string.h>

#include "callbox.h"

/* The failure that a target set last, until it sets success: its code, message and size. */
static struct {
  uint32_t code;
  bool recoverable;
  size_t size;
  char message[1024];
} callbox_test_failure;

CALLBOX_EXTERN_C uint32_t callbox_version(void) { return CALLBOX_VERSION; }

CALLBOX_EXTERN_C void callbox_set_failure(uint32_t code, const char *message, size_t size,
                                          bool recoverable) {
  size_t most = sizeof callbox_test_failure.message - 1;
  callbox_test_failure.code = code;
  callbox_test_failure.recoverable = recoverable;
  callbox_test_failure.size = size < most ? size : most;
  memcpy(callbox_test_failure.message, message, callbox_test_failure.size);
  callbox_test_failure.message[callbox_test_failure.size] = 0;
}

CALLBOX_EXTERN_C void callbox_set_success(void) {
  memset(&callbox_test_failure, 0, sizeof callbox_test_failure);
}

CALLBOX_EXTERN_C void callbox_log(uint32_t level, const char *message, size_t size) {
  fprintf(stderr, "log %u: %.*s\n", (unsigned)level, (int)size, message);
}

CALLBOX_EXTERN_C uint32_t callbox_call_function(uint32_t function, const callbox_buffer *operands,
                                                size_t operand_count,
                                                const callbox_buffer *results,
                                                size_t result_count) {
  (void)function, (void)operands, (void)operand_count, (void)results, (void)result_count;
  return CALLBOX_UNIMPLEMENTED;
}

CALLBOX_EXTERN_C uint32_t callbox_function_message(char *into, size_t size) {
  (void)into, (void)size;
  return 0;
}

CALLBOX_EXTERN_C int64_t callbox_user_data(const char *name, size_t name_size, void *into,
                                           size_t size) {
  (void)name, (void)name_size, (void)into, (void)size;
  return -1;
}

/* Returns an operand or a result in row-major order, of at most 8 dimensions. */
static inline callbox_buffer callbox_test_buffer(callbox_element_type type, void *data, size_t size,
                                                 const int64_t *dimensions, uint32_t rank) {
  static const int64_t order[] = {7, 6, 5, 4, 3, 2, 1, 0};
  callbox_buffer buffer;
  memset(&buffer, 0, sizeof buffer);
  buffer.data = data;
  buffer.size = (uint32_t)size;
  buffer.dimensions = dimensions;
  buffer.rank = rank;
  buffer.minor_to_major = order + 8 - rank;
  buffer.minor_to_major_size = rank;
  buffer.element_type = (uint8_t)type;
  return buffer;
}

/* Returns a scalar attribute. */
static inline callbox_attribute callbox_test_scalar(const char *name, callbox_element_type type,
                                                    const void *value, size_t size) {
  callbox_attribute attribute;
  memset(&attribute, 0, sizeof attribute);
  attribute.name.data = name;
  attribute.name.size = (uint32_t)strlen(name);
  attribute.value = value;
  attribute.size = (uint32_t)size;
  attribute.kind = CALLBOX_KIND_SCALAR;
  attribute.element_type = (uint8_t)type;
  return attribute;
}

/* Returns the frame of a call in the stage `execute`. The attributes are sorted by name. */
static inline callbox_call_frame callbox_test_frame(callbox_buffer *operands,
                                                    uint32_t operand_count,
                                                    callbox_buffer *results, uint32_t result_count,
                                                    const callbox_attribute *attributes,
                                                    uint32_t attribute_count) {
  callbox_call_frame frame;
  memset(&frame, 0, sizeof frame);
  frame.size = sizeof frame;
  frame.stage = CALLBOX_STAGE_EXECUTE;
  frame.operands.data = operands;
  frame.operands.count = operand_count;
  frame.results.data = results;
  frame.results.count = result_count;
  frame.attributes.data = attributes;
  frame.attributes.count = attribute_count;
  return frame;
}

#endif
