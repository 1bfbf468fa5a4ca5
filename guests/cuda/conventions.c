// The targets of ../c/conventions.c on the GPU. `buffers` has a pointer for each leaf.
// conventions_preorder.c compiles the same source for the oldest convention.
#include "callbox_cuda.h"

static const char ptx[] = {
#embed "../c/conventions.ptx"
    , 0};

static struct callbox_cuda_image image = CALLBOX_CUDA_IMAGE(ptx);

static bool launch(const char *kernel, unsigned threads, CUstream stream, void **parameters, XlaCustomCallStatus *status) {
  return callbox_cuda_launch(&image, kernel, 1, threads, stream, parameters, status);
}

// The work of a target, on the leaves of its operands and its output.
typedef bool Body(CUstream stream, void **leaves, XlaCustomCallStatus *status);

#ifdef CALLBOX_CUDA_PREORDER
#include "callbox_cuda_tuples.h"

static void run(Body *body, const char *operands, const char *output, CUstream stream, void **buffers, XlaCustomCallStatus *status) {
  struct callbox_cuda_tuples tuples;
  if (callbox_cuda_tuples_open(&tuples, operands, output, stream, buffers, status) && body(stream, tuples.leaves, status))
    callbox_cuda_tuples_fill(&tuples);
}
#else
static void run(Body *body, const char *operands, const char *output, CUstream stream, void **buffers, XlaCustomCallStatus *status) {
  (void)operands, (void)output;
  body(stream, buffers, status);
}
#endif

// A target's function without a status, and those with one.
#define ORIGINAL(name, body, operands, output)                                                       \
  void name(CUstream stream, void **buffers, const char *opaque, size_t opaque_len) {                \
    (void)opaque, (void)opaque_len;                                                                  \
    run(body, operands, output, stream, buffers, NULL);                                              \
  }                                                                                                  \
  XLA_REGISTER_CUSTOM_CALL_TARGET(name, "CUDA")

#define STATUS_RETURNING(name, body, operands, output)                                                                          \
  void name(CUstream stream, void **buffers, const char *opaque, size_t opaque_len, XlaCustomCallStatus *status) {              \
    (void)opaque, (void)opaque_len;                                                                                             \
    run(body, operands, output, stream, buffers, status);                                                                       \
  }                                                                                                                             \
  XLA_REGISTER_CUSTOM_CALL_TARGET(name, "CUDA")

#define IN_EVERY_CONVENTION(name, operands, output)          \
  ORIGINAL(name, name##_body, operands, output);             \
  STATUS_RETURNING(name##_status, name##_body, operands, output); \
  STATUS_RETURNING(name##_unified, name##_body, operands, output)

// No operands: f32[4] of 1.
static bool ones_body(CUstream stream, void **leaves, XlaCustomCallStatus *status) {
  void *parameters[] = {&leaves[0]};
  return launch("ones", 4, stream, parameters, status);
}
IN_EVERY_CONVENTION(ones, "", "a");

// p0 = (f32[2], (f32[2], f32[2])) to ((f32[2], f32[2]), f32[2]): the leaves in preorder, each twice
// its value.
static bool regroup_body(CUstream stream, void **leaves, XlaCustomCallStatus *status) {
  for (int leaf = 0; leaf < 3; leaf++) {
    void *parameters[] = {&leaves[leaf], &leaves[3 + leaf]};
    if (!launch("twice", 2, stream, parameters, status)) return false;
  }
  return true;
}
IN_EVERY_CONVENTION(regroup, "(a(aa))", "((aa)a)");

// f32[4] to (f32[4], f32[4]): twice the operand into the second, which is a temp buffer, and one
// more than that into the first.
static bool scratch_body(CUstream stream, void **leaves, XlaCustomCallStatus *status) {
  void *parameters[] = {&leaves[0], &leaves[1], &leaves[2]};
  return launch("scratch", 4, stream, parameters, status);
}
IN_EVERY_CONVENTION(scratch, "a", "(aa)");

// (f32[4]) to (f32[4]): adds one in place if both share memory, and otherwise returns f32[4] of
// NaN.
static bool in_place_body(CUstream stream, void **leaves, XlaCustomCallStatus *status) {
  void *parameters[] = {&leaves[0], &leaves[1]};
  return launch("in_place", 4, stream, parameters, status);
}
IN_EVERY_CONVENTION(in_place, "(a)", "(a)");

#ifdef CALLBOX_CUDA_PREORDER
// p0 = ((), token[], f32[]) to (s32[3], (), token[]): whether the empty tuple has an address,
// whether the token has one, and f32[]. An empty tuple has no leaf, so that only this convention
// passes it.
static void empty_tuple_and_token_any(CUstream stream, void **buffers, XlaCustomCallStatus *status) {
  struct callbox_cuda_tuples tuples;
  void *p0[3] = {buffers[1], buffers[2], buffers[3]};
  if (!callbox_cuda_tuples_open(&tuples, "(()aa)", "(a()a)", stream, buffers, status)) return;
  if (p0[0] == NULL && !callbox_cuda_read(p0, buffers[0], sizeof p0[0], stream, status)) return;
  int tuple = p0[0] != NULL && buffers[6] != NULL;
  int token = tuples.leaves[0] != NULL || buffers[7] != NULL;
  void *parameters[] = {&buffers[5], &tuple, &token, &tuples.leaves[1]};
  if (launch("empty_tuple_and_token", 1, stream, parameters, status)) callbox_cuda_tuples_fill(&tuples);
}

void empty_tuple_and_token(CUstream stream, void **buffers, const char *opaque, size_t opaque_len) {
  (void)opaque, (void)opaque_len;
  empty_tuple_and_token_any(stream, buffers, NULL);
}

void empty_tuple_and_token_status(CUstream stream, void **buffers, const char *opaque, size_t opaque_len, XlaCustomCallStatus *status) {
  (void)opaque, (void)opaque_len;
  empty_tuple_and_token_any(stream, buffers, status);
}

void empty_tuple_and_token_unified(CUstream stream, void **buffers, const char *opaque, size_t opaque_len, XlaCustomCallStatus *status) {
  empty_tuple_and_token_status(stream, buffers, opaque, opaque_len, status);
}
#endif

// "You can pass the dimensions in as parameters to the call", which is expensive here: in[2] and
// in[3] are s32[], the sizes of B and C.
static bool do_custom_call_sized_body(CUstream stream, void **leaves, XlaCustomCallStatus *status) {
  int32_t sizes[2];
  if (!callbox_cuda_read(&sizes[0], leaves[2], sizeof sizes[0], stream, status)) return false;
  if (!callbox_cuda_read(&sizes[1], leaves[3], sizeof sizes[1], stream, status)) return false;
  if (sizes[0] <= 0 || sizes[1] <= 0) return true;
  size_t b = (size_t)sizes[0], c = (size_t)sizes[1];
  void *parameters[] = {&leaves[0], &leaves[1], &leaves[4], &b, &c};
  unsigned blocks = (unsigned)((c + 255) / 256);
  return callbox_cuda_launch(&image, "custom_call", blocks, 256, stream, parameters, status);
}
ORIGINAL(do_custom_call_sized, do_custom_call_sized_body, "aaaa", "a");

// s32[] to s32[]: sets the status in the way that the number selects, and returns the number.
static bool set_status_body(CUstream stream, void **leaves, XlaCustomCallStatus *status) {
  int32_t way;
  if (!callbox_cuda_read(&way, leaves[0], sizeof way, stream, status)) return false;
  switch (way) {
    case 1: XlaCustomCallStatusSetFailure(status, "error", 5); break;
    case 2: XlaCustomCallStatusSetFailure(status, "error", 4); break;
    case 3: XlaCustomCallStatusSetFailure(status, "error", 100); break;
    case 4:
      XlaCustomCallStatusSetFailure(status, "error", 5);
      XlaCustomCallStatusSetSuccess(status);
      break;
    case 5:
      XlaCustomCallStatusSetSuccess(status);
      XlaCustomCallStatusSetFailure(status, "error", 5);
      break;
    case 6: XlaCustomCallStatusSetFailure(status, "error", 0); break;
    case 7: XlaCustomCallStatusSetFailure(status, NULL, 0); break;
    case 8:
      XlaCustomCallStatusSetFailure(status, "first", 5);
      XlaCustomCallStatusSetFailure(status, "second", 6);
      break;
    // Messages at the end of a module's memory have no twin: 9 and 10 are the same as 1 and 3, and
    // there is no 13.
    case 9: XlaCustomCallStatusSetFailure(status, "error", 5); break;
    case 10: XlaCustomCallStatusSetFailure(status, "error", SIZE_MAX); break;
    case 11: XlaCustomCallStatusSetFailure(status, "ab\0cd", 5); break;
    case 12: XlaCustomCallStatusSetFailure(status, "a\xff" "b", 3); break;
    case 14: XlaCustomCallStatusSetSuccess(status); break;
    default: break;
  }
  void *parameters[] = {&leaves[1], &way};
  return launch("set_s32", 1, stream, parameters, status);
}
STATUS_RETURNING(set_status, set_status_body, "a", "a");

// f32[] to f32[]: fails with the operand's whole part.
static bool report_failure_body(CUstream stream, void **leaves, XlaCustomCallStatus *status) {
  float x, zero = 0;
  if (!callbox_cuda_read(&x, leaves[0], sizeof x, stream, status)) return false;
  char message[64];
  int size = snprintf(message, sizeof message, "Failed: %lld.0", (long long)x);
  XlaCustomCallStatusSetFailure(status, message, (size_t)size);
  void *parameters[] = {&leaves[1], &zero};
  return launch("set_f32", 1, stream, parameters, status);
}
STATUS_RETURNING(report_failure, report_failure_body, "a", "a");

// No operands to u8[64]: the length as four little-endian bytes, then the opaque bytes.
void echo_opaque(CUstream stream, void **buffers, const char *opaque, size_t opaque_len, XlaCustomCallStatus *status) {
  uint8_t bytes[64];
  if ((uintptr_t)opaque % 16 != 0) callbox_cuda_fail(status, "opaque is not aligned to 16 bytes");
  if (opaque[opaque_len] != 0) callbox_cuda_fail(status, "there is no NUL behind opaque");
  for (size_t i = 0; i < 64; i++) bytes[i] = i < 4 ? (uint8_t)(opaque_len >> 8 * i) : i - 4 < opaque_len ? (uint8_t)opaque[i - 4] : 0;
  callbox_cuda_write(buffers[0], bytes, sizeof bytes, stream, status);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(echo_opaque, "CUDA");

// Fails with the opaque bytes.
void fail_with_opaque(CUstream stream, void **buffers, const char *opaque, size_t opaque_len, XlaCustomCallStatus *status) {
  (void)stream, (void)buffers;
  char message[256];
  int size = snprintf(message, sizeof message, "Fail with raw backend config str: %.*s", (int)opaque_len, opaque);
  XlaCustomCallStatusSetFailure(status, message, (size_t)size);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(fail_with_opaque, "CUDA");
