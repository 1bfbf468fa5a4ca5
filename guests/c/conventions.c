// The conventions before typed FFI, where the documents describe them without an example.
#include "custom_call.h"

// ---- (out, in) ----

// "You can pass the dimensions in as parameters to the call": in[2] and in[3] are s32[], the sizes
// of B and C.
void do_custom_call_sized(void *out, const void **in) {
  int32_t b = *(const int32_t *)in[2], c = *(const int32_t *)in[3];
  for (int32_t i = 0; i < c; i++)
    ((float *)out)[i] = ((const float *)in[0])[i % b] + ((const float *)in[1])[i];
}
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call_sized, "Host");

// No operands: f32[4] of 1.
void ones(void *out, const void **in) {
  (void)in;
  for (int i = 0; i < 4; i++) ((float *)out)[i] = 1;
}
XLA_REGISTER_CUSTOM_CALL_TARGET(ones, "Host");

// p0 = (f32[2], (f32[2], f32[2])) to ((f32[2], f32[2]), f32[2]): twice the leaves, in preorder.
void regroup(void *out, const void **in) {
  const void *const *p0 = (const void *const *)in[0];
  const void *const *inner = (const void *const *)p0[1];
  const float *leaves[3] = {(const float *)p0[0], (const float *)inner[0], (const float *)inner[1]};
  void **first = (void **)((void **)out)[0];
  float *results[3] = {(float *)first[0], (float *)first[1], (float *)((void **)out)[1]};
  for (int leaf = 0; leaf < 3; leaf++)
    for (int i = 0; i < 2; i++) results[leaf][i] = 2 * leaves[leaf][i];
}
XLA_REGISTER_CUSTOM_CALL_TARGET(regroup, "Host");

// p0 = ((), token[], f32[]) to (s32[3], (), token[]): whether the empty tuple has an address,
// whether the token has one, and f32[].
void empty_tuple_and_token(void *out, const void **in) {
  const void *const *p0 = (const void *const *)in[0];
  void **outs = (void **)out;
  int32_t *seen = (int32_t *)outs[0];
  seen[0] = p0[0] != NULL && outs[1] != NULL;
  seen[1] = p0[1] != NULL || outs[2] != NULL;
  seen[2] = (int32_t)*(const float *)p0[2];
}
XLA_REGISTER_CUSTOM_CALL_TARGET(empty_tuple_and_token, "Host");

// f32[4] to (f32[4], f32[4]): twice the operand into the second array, a temp buffer, and one more
// into the first.
void scratch(void *out, const void **in) {
  const float *x = (const float *)in[0];
  float *y = (float *)((void **)out)[0], *temp = (float *)((void **)out)[1];
  for (int i = 0; i < 4; i++) temp[i] = 2 * x[i];
  for (int i = 0; i < 4; i++) y[i] = 1 + temp[i];
}
XLA_REGISTER_CUSTOM_CALL_TARGET(scratch, "Host");

// (f32[4]) to (f32[4]), which share memory: adds one in place. NaN if they do not share memory.
void in_place(void *out, const void **in) {
  const float *x = (const float *)((const void *const *)in[0])[0];
  float *y = (float *)((void **)out)[0];
  for (int i = 0; i < 4; i++) y[i] = x == y ? y[i] + 1 : __builtin_nanf("");
}
XLA_REGISTER_CUSTOM_CALL_TARGET(in_place, "Host");

// f32 of six elements to the same, in the order of memory.
void six(void *out, const void **in) {
  for (int i = 0; i < 6; i++) ((float *)out)[i] = ((const float *)in[0])[i];
}
XLA_REGISTER_CUSTOM_CALL_TARGET(six, "Host");

// ---- (out, in, status) ----

// The same functions with the types of the two later conventions, which pass the same pointers.
#define IN_EVERY_CONVENTION(function)                                                        \
  void function##_status(void *out, const void **in, XlaCustomCallStatus *status) {          \
    (void)status;                                                                            \
    function(out, in);                                                                       \
  }                                                                                          \
  XLA_REGISTER_CUSTOM_CALL_TARGET(function##_status, "Host");                                \
  void function##_unified(void *out, const void **in, const char *opaque, size_t opaque_len, \
                          XlaCustomCallStatus *status) {                                     \
    (void)opaque, (void)opaque_len, (void)status;                                            \
    function(out, in);                                                                       \
  }                                                                                          \
  XLA_REGISTER_CUSTOM_CALL_TARGET(function##_unified, "Host")

IN_EVERY_CONVENTION(ones);
IN_EVERY_CONVENTION(regroup);
IN_EVERY_CONVENTION(empty_tuple_and_token);
IN_EVERY_CONVENTION(scratch);
IN_EVERY_CONVENTION(in_place);
IN_EVERY_CONVENTION(six);

static void set_failure(XlaCustomCallStatus *status, const char *message) {
  XlaCustomCallStatusSetFailure(status, message, callbox_size(message));
}

// Writes text up to the last byte of memory, and returns its address.
static char *at_the_end_of_memory(const char *text, size_t size) {
  if (__builtin_wasm_memory_grow(0, 1) == (size_t)-1) __builtin_trap();
  char *end = (char *)(__builtin_wasm_memory_size(0) << 16);
  for (size_t i = 0; i < size; i++) end[(ptrdiff_t)i - (ptrdiff_t)size] = text[i];
  return end - size;
}

// s32[] to s32[]: sets the status as the number selects. The result, if there is one, is the
// number.
void set_status(void *out, const void **in, XlaCustomCallStatus *status) {
  int32_t way = *(const int32_t *)in[0];
  *(int32_t *)out = way;
  switch (way) {
    case 1: XlaCustomCallStatusSetFailure(status, "error", 5); break;
    case 2: XlaCustomCallStatusSetFailure(status, "error", 4); break;
    case 3: XlaCustomCallStatusSetFailure(status, "error", 100); break;
    case 4:
      set_failure(status, "error");
      XlaCustomCallStatusSetSuccess(status);
      break;
    case 5:
      XlaCustomCallStatusSetSuccess(status);
      set_failure(status, "error");
      break;
    case 6: XlaCustomCallStatusSetFailure(status, "error", 0); break;
    case 7: XlaCustomCallStatusSetFailure(status, NULL, 0); break;
    case 8:
      set_failure(status, "first");
      set_failure(status, "second");
      break;
    case 9: XlaCustomCallStatusSetFailure(status, at_the_end_of_memory("error", 5), 5); break;
    case 10:
      XlaCustomCallStatusSetFailure(status, at_the_end_of_memory("error", 6), SIZE_MAX);
      break;
    case 11: XlaCustomCallStatusSetFailure(status, "ab\0cd", 5); break;
    case 12: XlaCustomCallStatusSetFailure(status, "a\xff\x62", 3); break;
    case 13: XlaCustomCallStatusSetFailure(status, at_the_end_of_memory("error", 5), 6); break;
    case 14: XlaCustomCallStatusSetSuccess(status); break;
    default: break;
  }
}
XLA_REGISTER_CUSTOM_CALL_TARGET(set_status, "Host");

// f32[] to f32[]: fails with the operand's integer part.
void report_failure(void *out, const void **in, XlaCustomCallStatus *status) {
  callbox_message message;
  message.size = 0;
  callbox_add(&message, "Failed: ");
  callbox_add_number(&message, (int64_t)*(const float *)in[0]);
  callbox_add(&message, ".0");
  *(float *)out = 0;
  XlaCustomCallStatusSetFailure(status, message.text, message.size);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(report_failure, "Host");

// ---- (out, in, opaque, opaque_len, status) ----

// Any operands to u8[64]: the number of opaque bytes in four bytes, little-endian, then the opaque
// bytes.
void echo_opaque(void *out, const void **in, const char *opaque, size_t opaque_len,
                 XlaCustomCallStatus *status) {
  (void)in;
  uint8_t *bytes = (uint8_t *)out;
  if ((uintptr_t)opaque % 16 != 0) set_failure(status, "opaque is not aligned to 16 bytes");
  if (opaque[opaque_len] != 0) set_failure(status, "there is no NUL behind opaque");
  for (size_t i = 0; i < 64; i++)
    bytes[i] = i < 4                ? (uint8_t)(opaque_len >> 8 * i)
               : i - 4 < opaque_len ? (uint8_t)opaque[i - 4]
                                    : 0;
}
XLA_REGISTER_CUSTOM_CALL_TARGET(echo_opaque, "Host");

// Fails with the opaque bytes as its message.
void fail_with_opaque(void *out, const void **in, const char *opaque, size_t opaque_len,
                      XlaCustomCallStatus *status) {
  (void)out, (void)in;
  callbox_message message;
  message.size = 0;
  callbox_add(&message, "Fail with raw backend config str: ");
  callbox_add_bytes(&message, opaque, opaque_len);
  XlaCustomCallStatusSetFailure(status, message.text, message.size);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(fail_with_opaque, "Host");

// The documents' first example, with the sizes in `opaque`: two numbers of four bytes.
void do_custom_call_opaque(void *out, const void **in, const char *opaque, size_t opaque_len,
                           XlaCustomCallStatus *status) {
  int32_t sizes[2];
  if (opaque_len != sizeof sizes) {
    set_failure(status, "opaque has to be two sizes of four bytes");
    return;
  }
  __builtin_memcpy(sizes, opaque, sizeof sizes);
  for (int32_t i = 0; i < sizes[1]; i++)
    ((float *)out)[i] = ((const float *)in[0])[i % sizes[0]] + ((const float *)in[1])[i];
}
XLA_REGISTER_CUSTOM_CALL_TARGET(do_custom_call_opaque, "Host");
