// Typed FFI in C: checks of operands and attributes, stages and state, functions of the program,
// user data.
#include "callbox.h"

#define CHECK(what) \
  if (!(what)) return CALLBOX_INVALID_ARGUMENT

static uint32_t length(const callbox_buffer *buffer) {
  return buffer->size / (uint32_t)sizeof(float);
}

// f32[n] to f32[n]: adds the attribute n, an f32.
CALLBOX_TARGET(c_add_n) {
  CHECK(callbox_check_counts(frame, 1, 1));
  const callbox_buffer *x = &frame->operands.data[0], *y = &frame->results.data[0];
  CHECK(callbox_check_buffer(x, CALLBOX_F32, 1));
  CHECK(callbox_check_buffer(y, CALLBOX_F32, 1));
  const float *n = (const float *)callbox_get_scalar(frame->attributes, "n", CALLBOX_F32);
  CHECK(n);
  for (uint32_t i = 0; i < length(y); i++) ((float *)y->data)[i] = ((const float *)x->data)[i] + *n;
  return CALLBOX_OK;
}

// Nothing to s64[6]: the scalar `number`; the first element, the number of elements and the rank of
// the array `numbers`; the size of the string `text`; the scalar `number` in the dictionary
// `inner`.
CALLBOX_TARGET(c_attributes) {
  CHECK(callbox_check_counts(frame, 0, 1));
  CHECK(callbox_check_buffer(&frame->results.data[0], CALLBOX_S64, 1));
  const int64_t *number =
      (const int64_t *)callbox_get_scalar(frame->attributes, "number", CALLBOX_S64);
  CHECK(number);
  const callbox_attribute *numbers = callbox_get_array(frame->attributes, "numbers", CALLBOX_S32);
  CHECK(numbers);
  callbox_bytes text;
  CHECK(callbox_get_string(frame->attributes, "text", &text));
  callbox_dictionary inner;
  CHECK(callbox_get_dictionary(frame->attributes, "inner", &inner));
  const int64_t *nested = (const int64_t *)callbox_get_scalar(inner, "number", CALLBOX_S64);
  CHECK(nested);
  int64_t *found = (int64_t *)frame->results.data[0].data;
  found[0] = *number;
  found[1] = numbers->size == 0 ? -1 : *(const int32_t *)numbers->value;
  found[2] = numbers->size / (uint32_t)sizeof(int32_t);
  found[3] = numbers->rank;
  found[4] = text.size;
  found[5] = *nested;
  return CALLBOX_OK;
}

// Nothing to s32[3]: the state of each stage: the attribute `first`, and each one more. The
// destructors log that they ran.
CALLBOX_STAGE(c_stages, instantiate) {
  const int32_t *first =
      (const int32_t *)callbox_get_scalar(frame->attributes, "first", CALLBOX_S32);
  CHECK(first);
  frame->instantiate_state = (void *)*first;
  return CALLBOX_OK;
}

CALLBOX_STAGE(c_stages, prepare) {
  frame->prepare_state = (char *)frame->instantiate_state + 1;
  return CALLBOX_OK;
}

CALLBOX_STAGE(c_stages, initialize) {
  frame->initialize_state = (char *)frame->prepare_state + 1;
  return CALLBOX_OK;
}

CALLBOX_TARGET(c_stages) {
  CHECK(callbox_check_counts(frame, 0, 1));
  int32_t *states = (int32_t *)frame->results.data[0].data;
  states[0] = (int32_t)frame->instantiate_state;
  states[1] = (int32_t)frame->prepare_state;
  states[2] = (int32_t)frame->initialize_state;
  return CALLBOX_OK;
}

static void log_drop(const char *what, const void *state) {
  callbox_message message;
  message.size = 0;
  callbox_add(&message, what);
  callbox_add_number(&message, (int32_t)state);
  callbox_log(CALLBOX_LOG_INFO, message.text, message.size);
}

CALLBOX_STAGE_DROP(c_stages, instantiate) { log_drop("instantiate left ", state); }
CALLBOX_STAGE_DROP(c_stages, prepare) { log_drop("prepare left ", state); }
CALLBOX_STAGE_DROP(c_stages, initialize) { log_drop("initialize left ", state); }

// "XLA Custom Calls Support Function References": `return func(a, b)`.
CALLBOX_TARGET(call_ref) {
  uint32_t function;
  CHECK(callbox_get_function(frame->attributes, "func", &function));
  return callbox_call_function(function, frame->operands.data, frame->operands.count,
                               frame->results.data, frame->results.count);
}

// The same, but fails with a failure of its own.
CALLBOX_TARGET(call_ref_and_explain) {
  uint32_t function;
  CHECK(callbox_get_function(frame->attributes, "func", &function));
  uint32_t code = callbox_call_function(function, frame->operands.data, frame->operands.count,
                                        frame->results.data, frame->results.count);
  if (code == CALLBOX_OK) return CALLBOX_OK;
  char text[64];
  uint32_t size = callbox_function_message(text, sizeof text);
  callbox_message message;
  message.size = 0;
  callbox_add(&message, "func failed with code ");
  callbox_add_number(&message, code);
  callbox_add(&message, ": ");
  callbox_add_bytes(&message, text, size < sizeof text ? size : sizeof text);
  return callbox_fail_message(CALLBOX_ABORTED, &message);
}

// Calls the call site's called computations in order, each with the operand and the result at its
// index.
CALLBOX_TARGET(call_computations) {
  callbox_functions functions = callbox_called_computations(frame);
  CHECK(callbox_check_counts(frame, functions.count, functions.count));
  for (uint32_t i = 0; i < functions.count; i++) {
    uint32_t code = callbox_call_function(functions.data[i], &frame->operands.data[i], 1,
                                          &frame->results.data[i], 1);
    if (code != CALLBOX_OK) return code;
  }
  return CALLBOX_OK;
}

// f32[n] to f32[n]: adds the first leaf of the call site's literal, an f32[n].
CALLBOX_TARGET(add_literal) {
  CHECK(callbox_check_counts(frame, 1, 1));
  callbox_buffers literal = callbox_literal(frame);
  if (literal.count == 0) return callbox_fail(CALLBOX_NOT_FOUND, "there is no literal");
  const callbox_buffer *x = &frame->operands.data[0], *y = &frame->results.data[0];
  CHECK(callbox_check_buffer(&literal.data[0], CALLBOX_F32, x->rank));
  if (literal.data[0].size != y->size)
    return callbox_fail(CALLBOX_INVALID_ARGUMENT, "the literal is of another size");
  for (uint32_t i = 0; i < length(y); i++)
    ((float *)y->data)[i] = ((const float *)x->data)[i] + ((const float *)literal.data[0].data)[i];
  return CALLBOX_OK;
}

// Nothing to u8[16]: the user data "answer", or NOT_FOUND.
CALLBOX_TARGET(user_data) {
  CHECK(callbox_check_counts(frame, 0, 1));
  const callbox_buffer *y = &frame->results.data[0];
  int64_t size = callbox_user_data("answer", 6, y->data, y->size);
  if (size < 0) return callbox_fail(CALLBOX_NOT_FOUND, "there is no user data \"answer\"");
  for (int64_t i = size; i < y->size; i++) ((uint8_t *)y->data)[i] = 0;
  return CALLBOX_OK;
}

// s32[], f32[4] to f32[4]: twice the operand. Then the s32[] selects an attack: 1 overwrites the
// frame's records, 2 all memory of the host's arena, so that each byte of the result is 0x3f, 3 the
// operands.
CALLBOX_TARGET(c_scribble) {
  CHECK(callbox_check_counts(frame, 2, 1));
  callbox_buffer *operands = frame->operands.data, *results = frame->results.data;
  int32_t how = *(const int32_t *)operands[0].data;
  const float *x = (const float *)operands[1].data;
  float *y = (float *)results[0].data;
  for (int i = 0; i < 4; i++) y[i] = 2 * x[i];
  if (how == 1) {
    __builtin_memset((void *)(uintptr_t)operands[1].dimensions, 0xff, 8);
    __builtin_memset(operands, 0xff, 2 * sizeof *operands);
    __builtin_memset(results, 0xff, sizeof *results);
    __builtin_memset(frame, 0xff, sizeof *frame);
  }
  if (how == 2) {
    char *end = (char *)(__builtin_wasm_memory_size(0) << 16), *least = (char *)frame;
    if ((char *)y < least) least = (char *)y;
    if ((char *)operands[0].data < least) least = (char *)operands[0].data;
    __builtin_memset(least, 0x3f, (size_t)(end - least));
  }
  if (how == 3) __builtin_memset((void *)(uintptr_t)x, 0xff, 16);
  return CALLBOX_OK;
}
