// Targets of the conventions before typed FFI that write where they must not: to their pointers, to
// their operands, to everything behind them. Each computes its result all the same, because the
// host trusts none of that memory. An operand s32[] selects the attack; 0 is none.
#include "custom_call.h"
#include "jax_ffi.h"

// Keeps the compiler from removing writes that nothing reads.
typedef volatile uint32_t Word;

static void fill(void *from, uint32_t words, uint32_t with) {
  for (uint32_t i = 0; i < words; i++) ((Word *)from)[i] = with;
}

// Fills memory from here to its end.
static void fill_rest(void *from, uint32_t with) {
  fill(from, (uint32_t)(((__builtin_wasm_memory_size(0) << 16) - (uintptr_t)from) / 4), with);
}

static void twice(float *y, const float *x) {
  for (int i = 0; i < 4; i++) y[i] = 2 * x[i];
}

// s32[], f32[4], f32[4] to (f32[4], f32[4]): twice the operands.
void clobber_pointers(void *out, const void **in) {
  int32_t how = *(const int32_t *)in[0];
  const float *a = (const float *)in[1], *b = (const float *)in[2];
  void **outs = (void **)out;
  float *y = (float *)outs[0], *z = (float *)outs[1];
  if (how == 1) fill(in, 3, 0xffffffff), fill(outs, 2, 0xffffffff);  // Before the results.
  if (how == 2) fill(in, 3, 0), fill(outs, 2, 0);
  twice(y, a);
  if (how == 3) outs[0] = z, outs[1] = y, in[1] = b, in[2] = a;  // Meanwhile: swaps them.
  twice(z, b);
  if (how == 4) outs[0] = (void *)a, outs[1] = (void *)4;  // After: an operand, and no buffer.
  if (how == 5) fill(in, 3, 0x7fffffff), fill(outs, 2, 0x80000000);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(clobber_pointers, "Host");

// ((f32[4]), f32[4]) to ((f32[4]), f32[4]): twice the leaves. Each pointer ends up pointing to the
// array that contains it.
void knot_tuples(void *out, const void **in) {
  void **p0 = (void **)(uintptr_t)in[0], **inner = (void **)p0[0];
  void **outs = (void **)out, **outs_inner = (void **)outs[0];
  twice((float *)outs_inner[0], (const float *)inner[0]);
  twice((float *)outs[1], (const float *)p0[1]);
  p0[0] = p0, p0[1] = inner, inner[0] = inner, in[0] = in;
  outs[0] = outs, outs[1] = outs_inner, outs_inner[0] = outs;
}
XLA_REGISTER_CUSTOM_CALL_TARGET(knot_tuples, "Host");

// s32[], f32[4] to f32[4]: twice the operand, which it then overwrites.
void write_operands(void *out, const void **in) {
  int32_t how = *(const int32_t *)in[0];
  twice((float *)out, (const float *)in[1]);
  if (how == 1) fill((void *)(uintptr_t)in[1], 4, 0), fill((void *)(uintptr_t)in[0], 1, 7);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(write_operands, "Host");

// s32[], f32[4] to f32[4]: twice the operand; or fills memory from the pointers to its end, the
// result included, with bytes of 0x3f.
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
  if (how == 3) *(Word *)NULL = 1;  // Address 0 is valid in WebAssembly.
}
XLA_REGISTER_CUSTOM_CALL_TARGET(write_past_result, "Host");

// Fills an array that is larger than the stack.
__attribute__((noinline)) static void fill_large_array(void) {
  Word large[18 << 10];
  fill((void *)large, 18 << 10, 0x3f3f3f3f);
}

// s32[] to s32[]: overflows the stack, which must trap before it overwrites the module's data.
void overflow_stack(void *out, const void **in) {
  int32_t how = *(const int32_t *)in[0];
  if (how == 1) fill_large_array();
  *(int32_t *)out = how;
}
XLA_REGISTER_CUSTOM_CALL_TARGET(overflow_stack, "Host");

// s32[] to s32[]: overwrites its opaque bytes and its status, then fails or succeeds.
void clobber_status(void *out, const void **in, const char *opaque, size_t opaque_len,
                    XlaCustomCallStatus *status) {
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

// s32[] to s32[]: overwrites the API table, the static information and the pointers, and calls
// entries that the table does not have.
void clobber_api(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
                 void **inputs) {
  int32_t how = *(const int32_t *)inputs[0];
  *(int32_t *)outputs[0] = how;
  if (static_info != NULL) fill(static_info, 1, 0xffffffff);
  if (how == 1) fill(inputs, 1, 0xffffffff), fill(outputs, 1, 0xffffffff);
  if (how == 2) JaxFFIStatusSetFailure(&api[2], status, "past the table");
  if (how == 3) fill(api, 3, 0xffffffff), JaxFFIStatusSetFailure(api, status, "no such function");
  if (how == 4) api[1] = api[0], JaxFFIStatusSetFailure(api, status, "a function of another type");
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(clobber_api);

// f32[] to f32[]: exported without a word about the order of outputs and inputs.
void without_an_order(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **inputs,
                      void **outputs) {
  (void)api, (void)status, (void)static_info;
  *(float *)outputs[0] = *(const float *)inputs[0];
}
CALLBOX_EXPORT(without_an_order, "without_an_order");

// Nothing to s32[]: a message that runs to the end of memory without a NUL.
void message_without_end(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
                         void **inputs) {
  (void)static_info, (void)inputs;
  *(int32_t *)outputs[0] = 0;
  char *end = (char *)(__builtin_wasm_memory_size(0) << 16);
  __builtin_memset(end - 16, 'x', 16);
  JaxFFIStatusSetFailure(api, status, end - 16);
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(message_without_end);
