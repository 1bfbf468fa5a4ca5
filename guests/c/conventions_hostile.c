// Targets of the conventions before typed FFI that write where they should not: to the pointers that they were handed, to operands, to all that lies
// behind. Each computes what it says, because the host believes none of it. s32[] says how it does so, where there are several ways: 0 not at all.
#include "custom_call.h"
#include "jax_ffi.h"

// Takes what is written from being left out: nothing here reads it.
typedef volatile uint32_t Word;

static void fill(void *from, uint32_t words, uint32_t with) {
  for (uint32_t i = 0; i < words; i++) ((Word *)from)[i] = with;
}

// To the end of memory.
static void fill_rest(void *from, uint32_t with) { fill(from, (uint32_t)(((__builtin_wasm_memory_size(0) << 16) - (uintptr_t)from) / 4), with); }

static void twice(float *y, const float *x) {
  for (int i = 0; i < 4; i++) y[i] = 2 * x[i];
}

// s32[], f32[4], f32[4] to (f32[4], f32[4]): twice the operands.
void clobber_pointers(void *out, const void **in) {
  int32_t how = *(const int32_t *)in[0];
  const float *a = (const float *)in[1], *b = (const float *)in[2];
  void **outs = (void **)out;
  float *y = (float *)outs[0], *z = (float *)outs[1];
  if (how == 1) fill(in, 3, 0xffffffff), fill(outs, 2, 0xffffffff);  // Before there is a result.
  if (how == 2) fill(in, 3, 0), fill(outs, 2, 0);
  twice(y, a);
  if (how == 3) outs[0] = z, outs[1] = y, in[1] = b, in[2] = a;  // Meanwhile: each for the other.
  twice(z, b);
  if (how == 4) outs[0] = (void *)a, outs[1] = (void *)4;  // After: the operands are no results, and 4 is no buffer.
  if (how == 5) fill(in, 3, 0x7fffffff), fill(outs, 2, 0x80000000);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(clobber_pointers, "Host");

// ((f32[4]), f32[4]) to ((f32[4]), f32[4]): twice the leaves, and each pointer points to the array that it is in.
void knot_tuples(void *out, const void **in) {
  void **p0 = (void **)(uintptr_t)in[0], **inner = (void **)p0[0];
  void **outs = (void **)out, **outs_inner = (void **)outs[0];
  twice((float *)outs_inner[0], (const float *)inner[0]);
  twice((float *)outs[1], (const float *)p0[1]);
  p0[0] = p0, p0[1] = inner, inner[0] = inner, in[0] = in;
  outs[0] = outs, outs[1] = outs_inner, outs_inner[0] = outs;
}
XLA_REGISTER_CUSTOM_CALL_TARGET(knot_tuples, "Host");

// s32[], f32[4] to f32[4]: twice the operand, which is overwritten then.
void write_operands(void *out, const void **in) {
  int32_t how = *(const int32_t *)in[0];
  twice((float *)out, (const float *)in[1]);
  if (how == 1) fill((void *)(uintptr_t)in[1], 4, 0), fill((void *)(uintptr_t)in[0], 1, 7);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(write_operands, "Host");

// s32[], f32[4] to f32[4]: twice the operand; or overwrites all from where the pointers are to the end of memory, and sets no result: then each of
// its bytes is 0x3f.
void write_everything(void *out, const void **in) {
  int32_t how = *(const int32_t *)in[0];
  twice((float *)out, (const float *)in[1]);
  void *least = (uintptr_t)in < (uintptr_t)out ? (void *)in : out;
  if (how == 1) fill_rest(least, 0x3f3f3f3f);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(write_everything, "Host");

// s32[] to s32[]: writes past its result, or far away from it.
void write_past_result(void *out, const void **in) {
  int32_t how = *(const int32_t *)in[0];
  *(int32_t *)out = how;
  if (how == 1) *(Word *)(__builtin_wasm_memory_size(0) << 16) = 1;
  if (how == 2) *(Word *)0xfffffffc = 1;
  if (how == 3) *(Word *)NULL = 1;  // Memory like any other.
}
XLA_REGISTER_CUSTOM_CALL_TARGET(write_past_result, "Host");

// s32[] to s32[]: writes over its opaque bytes and its status, and fails or succeeds all the same.
void clobber_status(void *out, const void **in, const char *opaque, size_t opaque_len, XlaCustomCallStatus *status) {
  int32_t how = *(const int32_t *)in[0];
  *(int32_t *)out = (int32_t)opaque_len;
  fill((void *)(uintptr_t)opaque, (uint32_t)(opaque_len + 4) / 4, 0xffffffff);
  if (status != NULL) fill(status, 1, 0xffffffff);
  if (how == 1) XlaCustomCallStatusSetFailure(status, "error", 5);
  if (how == 2) XlaCustomCallStatusSetFailure(NULL, "error", 5);
  if (how == 3) XlaCustomCallStatusSetFailure((XlaCustomCallStatus *)0xffffffff, "error", 5);
  if (how == 4) callbox_set_failure(CALLBOX_INTERNAL, (const char *)0xfffffff0, 0x20, false);
  if (how == 5) callbox_set_failure(CALLBOX_OK, "error", 5, false);
  if (how == 6) callbox_set_failure(17, "error", 5, false);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(clobber_status, "Host");

// s32[] to s32[]: writes over the API table, the static information and the pointers, and calls what is not in the table.
void clobber_api(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  int32_t how = *(const int32_t *)inputs[0];
  *(int32_t *)outputs[0] = how;
  if (static_info != NULL) fill(static_info, 1, 0xffffffff);
  if (how == 1) fill(inputs, 1, 0xffffffff), fill(outputs, 1, 0xffffffff);
  if (how == 2) JaxFFIStatusSetFailure(&api[2], status, "past the table");
  if (how == 3) fill(api, 3, 0xffffffff), JaxFFIStatusSetFailure(api, status, "no such function");
  if (how == 4) api[1] = api[0], JaxFFIStatusSetFailure(api, status, "a function of another type");
}
JAX_FFI_EXPORT(clobber_api);

// Nothing to s32[]: a message that ends with memory, and not with a NUL.
void message_without_end(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)static_info, (void)inputs;
  *(int32_t *)outputs[0] = 0;
  char *end = (char *)(__builtin_wasm_memory_size(0) << 16);
  __builtin_memset(end - 16, 'x', 16);
  JaxFFIStatusSetFailure(api, status, end - 16);
}
JAX_FFI_EXPORT(message_without_end);
