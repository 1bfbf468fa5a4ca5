// What the JAX FFI proposal says besides its example: the API table, static information in every way, recoverable failures; and static information
// that goes wrong. Arrays are f32[4] unless a comment says otherwise.
#include "jax_ffi.h"

// The version, as s32[].
void version(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)status, (void)static_info, (void)inputs;
  *(int32_t *)outputs[0] = JaxFFIVersion();
}
JAX_FFI_EXPORT(version);

// Two inputs, two outputs: the sum and the difference.
void sum_and_difference(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)api, (void)status, (void)static_info;
  const float *a = (const float *)inputs[0], *b = (const float *)inputs[1];
  for (int i = 0; i < 4; i++) ((float *)outputs[0])[i] = a[i] + b[i];
  for (int i = 0; i < 4; i++) ((float *)outputs[1])[i] = a[i] - b[i];
}
JAX_FFI_EXPORT(sum_and_difference);

// Fails as s32[] says: 1 for good, 2 recoverably, 3 both, of which the last counts. Otherwise returns it.
void fail(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)static_info;
  int32_t how = *(const int32_t *)inputs[0];
  *(int32_t *)outputs[0] = how;
  if (how & 2) JaxFFIStatusSetRecoverableFailure(api, status, "the matrix is singular");
  if (how & 1) JaxFFIStatusSetFailure(api, status, "out of memory");
}
JAX_FFI_EXPORT(fail);

// Fails, and lets success follow: there is none to be had from the API table.
void fail_and_continue(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)static_info, (void)inputs;
  JaxFFIStatusSetFailure(api, status, "");
  for (int i = 0; i < 4; i++) ((float *)outputs[0])[i] = 1;
}
JAX_FFI_EXPORT(fail_and_continue);

// Tuples are arrays of pointers here as in the conventions before: p0 = (f32[2], (f32[2], f32[2])) to ((f32[2], f32[2]), f32[2]), the leaves in
// preorder, each twice its value.
void regroup_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)api, (void)status, (void)static_info;
  void **p0 = (void **)inputs[0], **inner = (void **)p0[1], **first = (void **)outputs[0];
  const float *leaves[3] = {(const float *)p0[0], (const float *)inner[0], (const float *)inner[1]};
  float *results[3] = {(float *)first[0], (float *)first[1], (float *)outputs[1]};
  for (int leaf = 0; leaf < 3; leaf++)
    for (int i = 0; i < 2; i++) results[leaf][i] = 2 * leaves[leaf][i];
}
JAX_FFI_EXPORT(regroup_jax);

// p0 = ((), token[], f32[]) to (s32[3], (), token[]): whether the empty tuples have addresses, whether the tokens have any, and f32[].
void empty_tuple_and_token_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)api, (void)status, (void)static_info;
  void **p0 = (void **)inputs[0];
  int32_t *seen = (int32_t *)outputs[0];
  seen[0] = p0[0] != NULL && outputs[1] != NULL;
  seen[1] = p0[1] != NULL || outputs[2] != NULL;
  seen[2] = (int32_t) * (const float *)p0[2];
}
JAX_FFI_EXPORT(empty_tuple_and_token_jax);

// No inputs: f32[4] of 1.
void ones_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)api, (void)status, (void)static_info, (void)inputs;
  for (int i = 0; i < 4; i++) ((float *)outputs[0])[i] = 1;
}
JAX_FFI_EXPORT(ones_jax);

// To two arrays: twice the operand into the second, which is a temp buffer, and one more than that into the first.
void scratch_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)api, (void)status, (void)static_info;
  const float *x = (const float *)inputs[0];
  float *y = (float *)outputs[0], *temp = (float *)outputs[1];
  for (int i = 0; i < 4; i++) temp[i] = 2 * x[i];
  for (int i = 0; i < 4; i++) y[i] = 1 + temp[i];
}
JAX_FFI_EXPORT(scratch_jax);

// (f32[4]) to (f32[4]), one more, where they share memory: NaN if they do not.
void in_place_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)api, (void)status, (void)static_info;
  const float *x = (const float *)((void **)inputs[0])[0];
  float *y = (float *)outputs[0];
  for (int i = 0; i < 4; i++) y[i] = x == y ? y[i] + 1 : __builtin_nanf("");
}
JAX_FFI_EXPORT(in_place_jax);

// f32 of six elements to the same, in the order in which they lie in memory.
void six_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)api, (void)status, (void)static_info;
  for (int i = 0; i < 6; i++) ((float *)outputs[0])[i] = ((const float *)inputs[0])[i];
}
JAX_FFI_EXPORT(six_jax);

// Static information by value: u8[16] of its bytes up to the first NUL.
void echo_info(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)inputs;
  const char *info = (const char *)static_info;
  if (info == NULL) {
    JaxFFIStatusSetFailure(api, status, "there is no static information");
    return;
  }
  if ((uintptr_t)info % 16 != 0) {
    JaxFFIStatusSetFailure(api, status, "the static information is not aligned to 16 bytes");
    return;
  }
  size_t size = callbox_size(info);
  for (size_t i = 0; i < 16; i++) ((uint8_t *)outputs[0])[i] = i < size ? (uint8_t)info[i] : 0;
}
JAX_FFI_EXPORT(echo_info);

// Static information by reference: an object that knows which functions saw it.
typedef struct Counter {
  uint32_t magic;
  int32_t bytes;
  int32_t calls;
} Counter;

enum { MAGIC = 0x0c0ffee0 };

static Counter counter;

// Makes the one object there is, of how many bytes it is made of.
void *make_counter(const void *data, size_t size) {
  (void)data;
  if (counter.magic == MAGIC) __builtin_trap();
  counter = (Counter){MAGIC, (int32_t)size, 0};
  return &counter;
}

// Takes it back, and traps if it was: then the log has a failure.
void drop_counter(void *object) {
  if (object != &counter || counter.magic != MAGIC) __builtin_trap();
  counter.magic = 0;
  callbox_log(CALLBOX_LOG_INFO, "dropped", 7);
}
JAX_FFI_EXPORT_STATIC_INFO(make_counter, drop_counter);

// How many bytes the object is made of, as s32[]. Fails if s32[] is negative.
void read_counter(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  const Counter *read = (const Counter *)static_info;
  if (read == NULL || read->magic != MAGIC) {
    JaxFFIStatusSetFailure(api, status, "the object is gone");
    return;
  }
  if (*(const int32_t *)inputs[0] < 0) JaxFFIStatusSetFailure(api, status, "negative");
  *(int32_t *)outputs[0] = read->bytes;
}
JAX_FFI_EXPORT(read_counter);

// Constructors that make nothing.
void *make_nothing(const void *data, size_t size) {
  (void)data, (void)size;
  return NULL;
}
JAX_FFI_EXPORT(make_nothing);

void *make_failure(const void *data, size_t size) {
  callbox_set_failure(CALLBOX_NOT_FOUND, (const char *)data, size, false);
  return NULL;
}
JAX_FFI_EXPORT(make_failure);

// An object and a failure: the failure counts.
void *make_both(const void *data, size_t size) {
  make_failure(data, size);
  return &counter;
}
JAX_FFI_EXPORT(make_both);

void *make_trap(const void *data, size_t size) {
  (void)data, (void)size;
  __builtin_trap();
}
JAX_FFI_EXPORT(make_trap);

// Destructors that do not do what they should. Nobody is there to hear of it.
void drop_trap(void *object) {
  (void)object;
  __builtin_trap();
}
JAX_FFI_EXPORT(drop_trap);

void drop_failure(void *object) {
  (void)object;
  callbox_fail(CALLBOX_INTERNAL, "cannot be taken back");
}
JAX_FFI_EXPORT(drop_failure);

// Not a destructor: it takes two.
void drop_two(void *object, size_t size) { (void)object, (void)size; }
JAX_FFI_EXPORT(drop_two);
