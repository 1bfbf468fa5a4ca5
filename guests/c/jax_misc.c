// The JAX FFI proposal beyond its example: the API table, every form of static information,
// recoverable failures; and static information that misbehaves. Arrays are f32[4] unless a comment
// says otherwise.
#include "jax_ffi.h"

// The version, as s32[].
void version(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
             void **inputs) {
  (void)status, (void)static_info, (void)inputs;
  *(int32_t *)outputs[0] = JaxFFIVersion();
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(version);

// Two inputs, two outputs: the sum and the difference.
void sum_and_difference(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
                        void **inputs) {
  (void)api, (void)status, (void)static_info;
  const float *a = (const float *)inputs[0], *b = (const float *)inputs[1];
  for (int i = 0; i < 4; i++) ((float *)outputs[0])[i] = a[i] + b[i];
  for (int i = 0; i < 4; i++) ((float *)outputs[1])[i] = a[i] - b[i];
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(sum_and_difference);

// The s32[] selects a failure: 1 unrecoverable, 2 recoverable, 3 both, of which the last one
// counts. Otherwise returns it.
void fail(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) {
  (void)static_info;
  int32_t how = *(const int32_t *)inputs[0];
  *(int32_t *)outputs[0] = how;
  if (how & 2) JaxFFIStatusSetRecoverableFailure(api, status, "the matrix is singular");
  if (how & 1) JaxFFIStatusSetFailure(api, status, "out of memory");
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(fail);

// Fails, then continues as if it succeeded: the API table has no function that sets success.
void fail_and_continue(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
                       void **inputs) {
  (void)static_info, (void)inputs;
  JaxFFIStatusSetFailure(api, status, "");
  for (int i = 0; i < 4; i++) ((float *)outputs[0])[i] = 1;
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(fail_and_continue);

// Tuples are arrays of pointers, as in the older conventions: p0 = (f32[2], (f32[2], f32[2])) to
// ((f32[2], f32[2]), f32[2]), twice the leaves in preorder.
void regroup_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
                 void **inputs) {
  (void)api, (void)status, (void)static_info;
  void **p0 = (void **)inputs[0], **inner = (void **)p0[1], **first = (void **)outputs[0];
  const float *leaves[3] = {(const float *)p0[0], (const float *)inner[0], (const float *)inner[1]};
  float *results[3] = {(float *)first[0], (float *)first[1], (float *)outputs[1]};
  for (int leaf = 0; leaf < 3; leaf++)
    for (int i = 0; i < 2; i++) results[leaf][i] = 2 * leaves[leaf][i];
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(regroup_jax);

// p0 = ((), token[], f32[]) to (s32[3], (), token[]): whether the empty tuples have addresses,
// whether the tokens have any, and f32[].
void empty_tuple_and_token_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info,
                               void **outputs, void **inputs) {
  (void)api, (void)status, (void)static_info;
  void **p0 = (void **)inputs[0];
  int32_t *seen = (int32_t *)outputs[0];
  seen[0] = p0[0] != NULL && outputs[1] != NULL;
  seen[1] = p0[1] != NULL || outputs[2] != NULL;
  seen[2] = (int32_t)*(const float *)p0[2];
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(empty_tuple_and_token_jax);

// No inputs: f32[4] of 1.
void ones_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
              void **inputs) {
  (void)api, (void)status, (void)static_info, (void)inputs;
  for (int i = 0; i < 4; i++) ((float *)outputs[0])[i] = 1;
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(ones_jax);

// To two arrays: twice the operand into the second, a temp buffer, and one more into the first.
void scratch_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
                 void **inputs) {
  (void)api, (void)status, (void)static_info;
  const float *x = (const float *)inputs[0];
  float *y = (float *)outputs[0], *temp = (float *)outputs[1];
  for (int i = 0; i < 4; i++) temp[i] = 2 * x[i];
  for (int i = 0; i < 4; i++) y[i] = 1 + temp[i];
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(scratch_jax);

// (f32[4]) to (f32[4]), which share memory: adds one in place. NaN if they do not share memory.
void in_place_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
                  void **inputs) {
  (void)api, (void)status, (void)static_info;
  const float *x = (const float *)((void **)inputs[0])[0];
  float *y = (float *)outputs[0];
  for (int i = 0; i < 4; i++) y[i] = x == y ? y[i] + 1 : __builtin_nanf("");
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(in_place_jax);

// f32 of six elements to the same, in the order of memory.
void six_jax(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
             void **inputs) {
  (void)api, (void)status, (void)static_info;
  for (int i = 0; i < 6; i++) ((float *)outputs[0])[i] = ((const float *)inputs[0])[i];
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(six_jax);

// Static information by value: u8[16] of its bytes up to the first NUL.
void echo_info(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
               void **inputs) {
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
JAX_FFI_EXPORT_OUTPUTS_FIRST(echo_info);

// Static information by reference: an object that counts its uses.
typedef struct Counter {
  uint32_t magic;
  int32_t bytes;
  int32_t calls;
} Counter;

enum { MAGIC = 0x0c0ffee0 };

static Counter counter;

// Creates the only object, which knows the number of bytes it was made of.
void *make_counter(const void *data, size_t size) {
  (void)data;
  if (counter.magic == MAGIC) __builtin_trap();
  counter = (Counter){MAGIC, (int32_t)size, 0};
  return &counter;
}

// Destroys the object. Traps on a double free, which the log shows as a failure.
void drop_counter(void *object) {
  if (object != &counter || counter.magic != MAGIC) __builtin_trap();
  counter.magic = 0;
  callbox_log(CALLBOX_LOG_INFO, "dropped", 7);
}
JAX_FFI_EXPORT_STATIC_INFO(make_counter, drop_counter);

// Returns the number of bytes that the object was made of, as s32[]. Fails if s32[] is negative.
void read_counter(JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs,
                  void **inputs) {
  const Counter *read = (const Counter *)static_info;
  if (read == NULL || read->magic != MAGIC) {
    JaxFFIStatusSetFailure(api, status, "the object is gone");
    return;
  }
  if (*(const int32_t *)inputs[0] < 0) JaxFFIStatusSetFailure(api, status, "negative");
  *(int32_t *)outputs[0] = read->bytes;
}
JAX_FFI_EXPORT_OUTPUTS_FIRST(read_counter);

// Constructors without an object.
void *make_nothing(const void *data, size_t size) {
  (void)data, (void)size;
  return NULL;
}
CALLBOX_EXPORT(make_nothing, "make_nothing");

void *make_failure(const void *data, size_t size) {
  callbox_set_failure(CALLBOX_NOT_FOUND, (const char *)data, size, false);
  return NULL;
}
CALLBOX_EXPORT(make_failure, "make_failure");

// An object and a failure: the failure counts.
void *make_both(const void *data, size_t size) {
  make_failure(data, size);
  return &counter;
}
CALLBOX_EXPORT(make_both, "make_both");

void *make_trap(const void *data, size_t size) {
  (void)data, (void)size;
  __builtin_trap();
}
CALLBOX_EXPORT(make_trap, "make_trap");

// Destructors that fail. The host discards their errors.
void drop_trap(void *object) {
  (void)object;
  __builtin_trap();
}
CALLBOX_EXPORT(drop_trap, "drop_trap");

void drop_failure(void *object) {
  (void)object;
  callbox_fail(CALLBOX_INTERNAL, "cannot be taken back");
}
CALLBOX_EXPORT(drop_failure, "drop_failure");

// Not a destructor: it has two parameters.
void drop_two(void *object, size_t size) { (void)object, (void)size; }
CALLBOX_EXPORT(drop_two, "drop_two");
