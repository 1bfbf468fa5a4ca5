/* Write callbox kernels in C or C++: XLA-style custom calls that run sandboxed as WebAssembly.
 *
 * This header has typed FFI and the FFI API table. The contract is `wit/callbox-ffi.wit`, which
 * documents each record and function in full.
 *
 *     #include "callbox.h"
 *
 *     CALLBOX_TARGET(negate) {
 *       if (!callbox_check_counts(frame, 1, 1)) return CALLBOX_INVALID_ARGUMENT;
 *       const callbox_buffer *operand = &frame->operands.data[0];
 *       const callbox_buffer *result = &frame->results.data[0];
 *       if (!callbox_check_buffer(operand, CALLBOX_F32, 1)) return CALLBOX_INVALID_ARGUMENT;
 *       if (!callbox_check_buffer(result, CALLBOX_F32, 1)) return CALLBOX_INVALID_ARGUMENT;
 *       if (result->size != operand->size)
 *         return callbox_fail(CALLBOX_INVALID_ARGUMENT, "expected a result like the operand");
 *       const float *x = (const float *)operand->data;
 *       float *y = (float *)result->data;
 *       for (uint32_t i = 0; i < result->size / sizeof *y; i++) y[i] = -x[i];
 *       return CALLBOX_OK;
 *     }
 *
 * Compile with
 *
 *     clang --config=guest-sdk/wasm32.cfg negate.c -o negate.wasm
 *
 * `wasm32.cfg` has the flags. A build of your own must not leave out `-Wl,--stack-first`: without
 * it a stack that overflows overwrites the kernel's data, and the call returns OK with wrong
 * results.
 *
 * The header needs clang, C11 or C++17, and no C library. For a kernel with wasi-libc see
 * CALLBOX_DEFINE_REALLOC.
 */
#ifndef CALLBOX_H
#define CALLBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__wasm32__) && !defined(CALLBOX_TEST_H)
#error "callbox.h is for guests: compile with clang --target=wasm32, or test with callbox_test.h"
#endif

#ifdef __cplusplus
#define CALLBOX_EXTERN_C extern "C"
#define CALLBOX_STATIC_ASSERT static_assert
#else
#define CALLBOX_EXTERN_C
#define CALLBOX_STATIC_ASSERT _Static_assert
#endif
#define CALLBOX_ASSERT(condition) CALLBOX_STATIC_ASSERT(condition, #condition)

/* The version of the contract that this header implements, in the form of `callbox_version`. */
#define CALLBOX_VERSION (1u << 16 | 1u)

/* ---- Numbers ---- */

/* The type of an array's elements: XLA's `PrimitiveType` (xla/xla_data.proto). */
typedef enum callbox_element_type {
  CALLBOX_INVALID, CALLBOX_PRED,
  CALLBOX_S8, CALLBOX_S16, CALLBOX_S32, CALLBOX_S64,
  CALLBOX_U8, CALLBOX_U16, CALLBOX_U32, CALLBOX_U64,
  CALLBOX_F16, CALLBOX_F32, CALLBOX_F64,
  CALLBOX_TUPLE, CALLBOX_OPAQUE_TYPE,
  CALLBOX_C64, CALLBOX_BF16, CALLBOX_TOKEN, CALLBOX_C128,
  CALLBOX_F8E5M2, CALLBOX_F8E4M3FN,
  CALLBOX_S4, CALLBOX_U4,
  CALLBOX_F8E4M3B11FNUZ, CALLBOX_F8E5M2FNUZ, CALLBOX_F8E4M3FNUZ,
  CALLBOX_S2, CALLBOX_U2,
  CALLBOX_F8E4M3, CALLBOX_F8E3M4,
  CALLBOX_S1, CALLBOX_U1,
  CALLBOX_F4E2M1FN, CALLBOX_F8E8M0FNU
} callbox_element_type;

/* The outcome of a call: `absl::StatusCode`. */
typedef enum callbox_status_code {
  CALLBOX_OK, CALLBOX_CANCELLED, CALLBOX_UNKNOWN, CALLBOX_INVALID_ARGUMENT,
  CALLBOX_DEADLINE_EXCEEDED, CALLBOX_NOT_FOUND, CALLBOX_ALREADY_EXISTS, CALLBOX_PERMISSION_DENIED,
  CALLBOX_RESOURCE_EXHAUSTED, CALLBOX_FAILED_PRECONDITION, CALLBOX_ABORTED, CALLBOX_OUT_OF_RANGE,
  CALLBOX_UNIMPLEMENTED, CALLBOX_INTERNAL, CALLBOX_UNAVAILABLE, CALLBOX_DATA_LOSS,
  CALLBOX_UNAUTHENTICATED
} callbox_status_code;

/* The stage of a call: `XLA_FFI_ExecutionStage` (xla/ffi/api/c_api.h). */
typedef enum callbox_stage {
  CALLBOX_STAGE_INSTANTIATE, CALLBOX_STAGE_PREPARE, CALLBOX_STAGE_INITIALIZE, CALLBOX_STAGE_EXECUTE
} callbox_stage;

/* The kind of an attribute's value: `XLA_FFI_AttrType`, and functions. */
typedef enum callbox_attribute_kind {
  CALLBOX_KIND_NONE, CALLBOX_KIND_ARRAY, CALLBOX_KIND_DICTIONARY, CALLBOX_KIND_SCALAR,
  CALLBOX_KIND_STRING, CALLBOX_KIND_FUNCTION
} callbox_attribute_kind;

typedef enum callbox_log_level {
  CALLBOX_LOG_ERROR, CALLBOX_LOG_WARN, CALLBOX_LOG_INFO, CALLBOX_LOG_DEBUG, CALLBOX_LOG_TRACE
} callbox_log_level;

/* ---- Records. An enum takes one byte in a record ---- */

/* Bytes, or UTF-8 without a NUL at its end. */
typedef struct callbox_bytes {
  const char *data;
  uint32_t size;
} callbox_bytes;

/* The operand whose memory a result shares, if there is one. */
typedef struct callbox_alias {
  bool is_some;
  uint32_t operand;
} callbox_alias;

/* One operand or result: a dense array, with its elements in the order of `minor_to_major`. */
typedef struct callbox_buffer {
  void *data;
  uint32_t size; /* in bytes */
  const int64_t *dimensions;
  uint32_t rank;
  const int64_t *minor_to_major;
  uint32_t minor_to_major_size;
  uint8_t element_type; /* callbox_element_type */
  bool read_only;
  callbox_alias alias;
} callbox_buffer;

typedef struct callbox_buffers {
  callbox_buffer *data;
  uint32_t count;
} callbox_buffers;

/* A named value that is fixed when the program is compiled. */
typedef struct callbox_attribute {
  callbox_bytes name;
  const void *value;
  uint32_t size; /* in bytes */
  const int64_t *dimensions;
  uint32_t rank;
  uint8_t kind;         /* callbox_attribute_kind */
  uint8_t element_type; /* callbox_element_type, of a scalar or an array */
} callbox_attribute;

/* Attributes, sorted by name. */
typedef struct callbox_dictionary {
  const callbox_attribute *data;
  uint32_t count;
} callbox_dictionary;

/* Numbers of functions, for `callbox_call_function`. */
typedef struct callbox_functions {
  const uint32_t *data;
  uint32_t count;
} callbox_functions;

/* The parameter of a target. The record of a host of version 1.0 ends before `literal_since_1_1`:
 * read the fields of version 1.1 with `callbox_literal` and `callbox_called_computations`. */
typedef struct callbox_call_frame {
  uint32_t size; /* of this record in bytes */
  uint8_t stage; /* callbox_stage */
  callbox_buffers operands;
  callbox_buffers results;
  callbox_dictionary attributes;
  callbox_bytes opaque;
  /* The state that each stage left for later stages: a pointer, or a number cast to a pointer. A
   * stage writes its own. */
  void *instantiate_state;
  void *prepare_state;
  void *initialize_state;
  callbox_buffers literal_since_1_1;
  callbox_functions functions_since_1_1;
} callbox_call_frame;

#ifdef __wasm32__
#define CALLBOX_ASSERT_FIELD(record, field, offset) \
  CALLBOX_ASSERT(offsetof(record, field) == (offset))
CALLBOX_ASSERT(sizeof(callbox_buffer) == 36);
CALLBOX_ASSERT_FIELD(callbox_buffer, data, 0);
CALLBOX_ASSERT_FIELD(callbox_buffer, size, 4);
CALLBOX_ASSERT_FIELD(callbox_buffer, dimensions, 8);
CALLBOX_ASSERT_FIELD(callbox_buffer, rank, 12);
CALLBOX_ASSERT_FIELD(callbox_buffer, minor_to_major, 16);
CALLBOX_ASSERT_FIELD(callbox_buffer, minor_to_major_size, 20);
CALLBOX_ASSERT_FIELD(callbox_buffer, element_type, 24);
CALLBOX_ASSERT_FIELD(callbox_buffer, read_only, 25);
CALLBOX_ASSERT_FIELD(callbox_buffer, alias, 28);
CALLBOX_ASSERT_FIELD(callbox_alias, operand, 4);
CALLBOX_ASSERT(sizeof(callbox_attribute) == 28);
CALLBOX_ASSERT_FIELD(callbox_attribute, name, 0);
CALLBOX_ASSERT_FIELD(callbox_attribute, value, 8);
CALLBOX_ASSERT_FIELD(callbox_attribute, size, 12);
CALLBOX_ASSERT_FIELD(callbox_attribute, dimensions, 16);
CALLBOX_ASSERT_FIELD(callbox_attribute, rank, 20);
CALLBOX_ASSERT_FIELD(callbox_attribute, kind, 24);
CALLBOX_ASSERT_FIELD(callbox_attribute, element_type, 25);
CALLBOX_ASSERT(sizeof(callbox_call_frame) == 68);
CALLBOX_ASSERT_FIELD(callbox_call_frame, size, 0);
CALLBOX_ASSERT_FIELD(callbox_call_frame, stage, 4);
CALLBOX_ASSERT_FIELD(callbox_call_frame, operands, 8);
CALLBOX_ASSERT_FIELD(callbox_call_frame, results, 16);
CALLBOX_ASSERT_FIELD(callbox_call_frame, attributes, 24);
CALLBOX_ASSERT_FIELD(callbox_call_frame, opaque, 32);
CALLBOX_ASSERT_FIELD(callbox_call_frame, instantiate_state, 40);
CALLBOX_ASSERT_FIELD(callbox_call_frame, prepare_state, 44);
CALLBOX_ASSERT_FIELD(callbox_call_frame, initialize_state, 48);
CALLBOX_ASSERT_FIELD(callbox_call_frame, literal_since_1_1, 52);
CALLBOX_ASSERT_FIELD(callbox_call_frame, functions_since_1_1, 60);
CALLBOX_ASSERT(sizeof(callbox_bytes) == 8 && sizeof(callbox_buffers) == 8 &&
               sizeof(callbox_dictionary) == 8);
#endif

/* ---- The FFI API table. A module imports the functions that it calls, each from the version that
 * introduced it ---- */

#ifdef __wasm32__
#define CALLBOX_API(version, name) \
  CALLBOX_EXTERN_C __attribute__((import_module("callbox:ffi/api@" version), import_name(name)))
#define CALLBOX_EXPORTED(name) CALLBOX_EXTERN_C __attribute__((used, export_name(name)))
#else
#define CALLBOX_API(version, name) CALLBOX_EXTERN_C
#define CALLBOX_EXPORTED(name) CALLBOX_EXTERN_C
#endif

/* Returns the host's version of the contract: the major version in the upper 16 bits, the minor
 * version in the lower 16. */
CALLBOX_API("1.0.0", "version") uint32_t callbox_version(void);

/* Sets the call's status to a failure, which replaces an earlier one. `code` is not CALLBOX_OK. */
CALLBOX_API("1.0.0", "set-failure")
void callbox_set_failure(uint32_t code, const char *message, size_t size, bool recoverable);

/* Sets the call's status back to success. */
CALLBOX_API("1.0.0", "set-success") void callbox_set_success(void);

/* Writes a message to the host's log. */
CALLBOX_API("1.0.0", "log") void callbox_log(uint32_t level, const char *message, size_t size);

/* Calls a function of the running executable, and returns its status code. A target that returns
 * the code without setting a failure of its own passes on the function's failure. */
CALLBOX_API("1.1.0", "call-function")
uint32_t callbox_call_function(uint32_t function, const callbox_buffer *operands,
                               size_t operand_count, const callbox_buffer *results,
                               size_t result_count);

/* Copies the message of `callbox_call_function`'s last failure, as much of it as fits, and returns
 * the size of the whole message. */
CALLBOX_API("1.1.0", "function-message") uint32_t callbox_function_message(char *into, size_t size);

/* Copies the bytes that the embedder attached to the execution under this name, as many as fit, and
 * returns the number of all bytes, or -1 if the name has none. */
CALLBOX_API("1.1.0", "user-data")
int64_t callbox_user_data(const char *name, size_t name_size, void *into, size_t size);

/* ---- Exports ---- */

/* Defines a target of typed FFI: a function `(callbox_call_frame *frame) -> status code`. */
#define CALLBOX_TARGET(name) CALLBOX_EXPORTED(#name) uint32_t name(callbox_call_frame *frame)

/* Defines a stage before `execute`: `instantiate`, `prepare` or `initialize`. */
#define CALLBOX_STAGE(name, stage) \
  CALLBOX_EXPORTED(#name "." #stage) uint32_t name##_##stage(callbox_call_frame *frame)

/* Defines the destructor of a stage's state, which runs once each time that the stage succeeded. */
#define CALLBOX_STAGE_DROP(name, stage) \
  CALLBOX_EXPORTED(#name "." #stage ".drop") void name##_##stage##_drop(void *state)

/* Exports a function of any signature under a name of letters, digits, `_`, `.` and `$`. The
 * function is defined above. In C it is not static, and it has one such name. */
#ifndef __wasm32__
#define CALLBOX_EXPORT(function, name) CALLBOX_ASSERT(sizeof(&function) != 0)
#elif defined(__cplusplus)
#define CALLBOX_EXPORT(function, name) CALLBOX_EXPORT_NUMBERED_(function, name, __COUNTER__)
#define CALLBOX_EXPORT_NUMBERED_(function, name, number) CALLBOX_EXPORT_(function, name, number)
/* C++ mangles names, and attributes cannot follow a definition. Therefore the macro exports another
 * function of the same type. Its symbol is made of the export's name, which is unique in a module;
 * a function's own name may occur in several sources. */
#define CALLBOX_EXPORT_(function, name, number)                                                  \
  template <typename Type>                                                                       \
  struct callbox_export_##number;                                                                \
  template <typename Result, bool IsNoexcept, typename... Arguments>                             \
  struct callbox_export_##number<Result(Arguments...) noexcept(IsNoexcept)> {                    \
    __attribute__((used, export_name(name))) static Result call(Arguments... arguments) __asm__( \
        "callbox_export." name);                                                                 \
  };                                                                                             \
  template <typename Result, bool IsNoexcept, typename... Arguments>                             \
  Result callbox_export_##number<Result(Arguments...) noexcept(IsNoexcept)>::call(               \
      Arguments... arguments) {                                                                  \
    return function(arguments...);                                                               \
  }                                                                                              \
  template struct callbox_export_##number<decltype(function)>
#else
#define CALLBOX_EXPORT(function, name)                                \
  __asm__(".globl " #function "\n.export_name " #function ", " name); \
  CALLBOX_ASSERT(sizeof(&function) == 4)
#endif

/* Describes a target as JSON, for callers and for `callbox inspect`:
 *
 *     CALLBOX_METADATA({"name": "negate", "ffi_version": "1.0", "doc": "Negates.",
 *                       "traits": ["pure"]})
 *
 * A module that describes one target has to describe all of them.
 *
 * Operands and results can have dimensions: sizes; symbols, which are the same size throughout a
 * target; expressions of both such as "n/2" and "2*n+1"; and at first ".." for any number of
 * dimensions. The host checks calls against them, and infers the shapes of results:
 *
 *     CALLBOX_METADATA({
 *       "name": "norm", "ffi_version": "1.0", "traits": ["pure"],
 *       "operands": [{"name": "x", "element_types": ["F32"], "dimensions": ["..", "n"]}],
 *       "results": [{"name": "y", "element_types": ["F32"], "dimensions": [".."]}]})
 *
 * An attribute has a "name", a "kind" (scalar, array, string, dictionary, function), an
 * "element_type" and, if a call may omit it, "optional": true. A dictionary may have "fields", a
 * list of the same, and an enum "variants", as in {"Down": -1, "Up": 1}. Without the field
 * "attributes" a target takes any; an empty list means that it takes none:
 *
 *     CALLBOX_METADATA({
 *       "name": "shift", "ffi_version": "1.0",
 *       "attributes": [{"name": "by", "kind": "scalar", "element_type": "S32", "optional": true}]})
 *
 * The trait "elementwise" promises that the target is pure, and that each element of a result
 * depends only on the operands' elements at the same index, on operands of rank 0 and on
 * attributes. The trait "rows" promises the same of each row: of what follows ".." in the
 * dimensions of operands and results that declare it. A host calls such targets on pieces of large
 * arrays, on several threads. The trait "batched" promises it of each entry of the dimension
 * "batch", the first one: a host passes whole batches. guests/MANIFEST.md describes all three.
 *
 * A target that computes the derivatives of another one names it, so that callers need not:
 *
 *     CALLBOX_METADATA({"name": "negate_grad", "ffi_version": "1.0", "derivative_of": "negate"})
 *
 * It takes the operands and then the cotangents of the results, and returns the cotangents of the
 * operands. With "derivative_mode": "jvp" it takes the tangents of the operands, and returns those
 * of the results. */
#ifdef __wasm32__
#define CALLBOX_METADATA(...) CALLBOX_METADATA_(#__VA_ARGS__)
#else
#define CALLBOX_METADATA(...)
#endif
/* The second `#` escapes the JSON text for the assembler, whose strings are like C's. */
#define CALLBOX_METADATA_(json) \
  __asm__(".section .custom_section.callbox.targets,\"\",@\n.ascii " #json "\n.byte 10\n.text\n");

/* Defines and exports the allocator through which the host allocates the call's memory. A guest
 * that uses the C library's allocator needs it:
 *
 *     #include <stdlib.h>
 *     #include <string.h>
 *     CALLBOX_DEFINE_REALLOC
 *
 * Compile with `guest-sdk/wasm32-wasi.cfg`; guests/c/README.md says how.
 */
#define CALLBOX_DEFINE_REALLOC                                                   \
  CALLBOX_EXPORTED("cabi_realloc")                                               \
  void *cabi_realloc(void *old, size_t old_size, size_t align, size_t size) {    \
    void *block = size <= SIZE_MAX - align                                       \
                      ? aligned_alloc(align, (size + align - 1) / align * align) \
                      : NULL;                                                    \
    if (block != NULL && old != NULL) {                                          \
      memcpy(block, old, old_size < size ? old_size : size);                     \
      free(old);                                                                 \
    }                                                                            \
    return block;                                                                \
  }

/* ---- Fields of the frame since version 1.1 ---- */

/* Returns the leaves of the call site's `literal`. A host of version 1.0 passes none. */
static inline callbox_buffers callbox_literal(const callbox_call_frame *frame) {
  callbox_buffers none = {NULL, 0};
  return frame->size >= offsetof(callbox_call_frame, functions_since_1_1) ? frame->literal_since_1_1
                                                                          : none;
}

/* Returns the call site's called computations. A host of version 1.0 passes none. */
static inline callbox_functions callbox_called_computations(const callbox_call_frame *frame) {
  callbox_functions none = {NULL, 0};
  return frame->size >= sizeof(callbox_call_frame) ? frame->functions_since_1_1 : none;
}

/* ---- Failures ---- */

/* A message under construction, which starts with size 0 and is truncated at its capacity. */
typedef struct callbox_message {
  char text[256];
  uint32_t size;
} callbox_message;

/* Keeps the compiler from replacing loops with calls of strlen and memcpy, which may be missing. */
#define CALLBOX_PLAIN_ __attribute__((no_builtin)) static inline

CALLBOX_PLAIN_ size_t callbox_size(const char *text) {
  size_t size = 0;
  while (text[size] != 0) size++;
  return size;
}

CALLBOX_PLAIN_ void callbox_add_bytes(callbox_message *message, const char *text, size_t size) {
  for (size_t i = 0; i < size && message->size < sizeof message->text; i++)
    message->text[message->size++] = text[i];
}

static inline void callbox_add(callbox_message *message, const char *text) {
  callbox_add_bytes(message, text, callbox_size(text));
}

static inline void callbox_add_number(callbox_message *message, int64_t number) {
  char digits[20];
  uint32_t at = sizeof digits;
  uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
  do {
    digits[--at] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  if (number < 0) callbox_add(message, "-");
  callbox_add_bytes(message, digits + at, sizeof digits - at);
}

/* Sets a failure and returns its code: `return callbox_fail(CALLBOX_NOT_FOUND, "no such row");` */
static inline uint32_t callbox_fail(callbox_status_code code, const char *text) {
  callbox_set_failure(code, text, callbox_size(text), false);
  return code;
}

static inline uint32_t callbox_fail_message(callbox_status_code code,
                                            const callbox_message *message) {
  callbox_set_failure(code, message->text, message->size, false);
  return code;
}

/* Sets INVALID_ARGUMENT with XLA's message, and returns false. */
static inline bool callbox_mismatch_(const char *what, const char *expected, const char *found) {
  callbox_message message;
  message.size = 0;
  callbox_add(&message, what);
  callbox_add(&message, ": expected ");
  callbox_add(&message, expected);
  callbox_add(&message, " but got ");
  callbox_add(&message, found);
  callbox_fail_message(CALLBOX_INVALID_ARGUMENT, &message);
  return false;
}

static inline bool callbox_number_mismatch_(const char *prefix, const char *what, int64_t expected,
                                            int64_t found) {
  callbox_message message;
  message.size = 0;
  callbox_add(&message, prefix);
  callbox_add(&message, what);
  callbox_add(&message, ": expected ");
  callbox_add_number(&message, expected);
  callbox_add(&message, " but got ");
  callbox_add_number(&message, found);
  callbox_fail_message(CALLBOX_INVALID_ARGUMENT, &message);
  return false;
}

/* ---- Names ---- */

/* Returns XLA's name of an element type, such as "F32". */
static inline const char *callbox_element_type_name(uint8_t type) {
  static const char *const names[] = {
      "INVALID",    "PRED",       "S8",          "S16",      "S32",    "S64",
      "U8",         "U16",        "U32",         "U64",      "F16",    "F32",
      "F64",        "TUPLE",      "OPAQUE_TYPE", "C64",      "BF16",   "TOKEN",
      "C128",       "F8E5M2",     "F8E4M3FN",    "S4",       "U4",     "F8E4M3B11FNUZ",
      "F8E5M2FNUZ", "F8E4M3FNUZ", "S2",          "U2",       "F8E4M3", "F8E3M4",
      "S1",         "U1",         "F4E2M1FN",    "F8E8M0FNU"};
  CALLBOX_ASSERT(sizeof names / sizeof *names == CALLBOX_F8E8M0FNU + 1);
  return names[type < sizeof names / sizeof *names ? type : 0];
}

/* Returns XLA's name of a kind of attribute, such as "scalar". */
static inline const char *callbox_attribute_kind_name(uint8_t kind) {
  static const char *const names[] = {"none",   "array",  "dictionary",
                                      "scalar", "string", "function"};
  return names[kind < sizeof names / sizeof *names ? kind : 0];
}

/* ---- Checks. A check that fails sets a failure with XLA's message and returns false; the target
 * then returns CALLBOX_INVALID_ARGUMENT ---- */

/* Checks the numbers of operands and results. */
static inline bool callbox_check_counts(const callbox_call_frame *frame, uint32_t operands,
                                        uint32_t results) {
  static const char *const stages[] = {"[instantiate] ", "[prepare] ", "[initialize] ",
                                       "[execute] "};
  const char *stage =
      stages[frame->stage < sizeof stages / sizeof *stages ? frame->stage : CALLBOX_STAGE_EXECUTE];
  if (frame->operands.count != operands)
    return callbox_number_mismatch_(stage, "Wrong number of arguments", operands,
                                    frame->operands.count);
  if (frame->results.count != results)
    return callbox_number_mismatch_(stage, "Wrong number of results", results,
                                    frame->results.count);
  return true;
}

/* Any rank, for `callbox_check_buffer`. */
#define CALLBOX_ANY_RANK UINT32_MAX

/* Checks a buffer's element type and rank. */
static inline bool callbox_check_buffer(const callbox_buffer *buffer, callbox_element_type type,
                                        uint32_t rank) {
  if (buffer->element_type != type)
    return callbox_mismatch_("Wrong buffer dtype", callbox_element_type_name((uint8_t)type),
                             callbox_element_type_name(buffer->element_type));
  if (rank != CALLBOX_ANY_RANK && buffer->rank != rank)
    return callbox_number_mismatch_("", "Wrong buffer rank", rank, buffer->rank);
  return true;
}

/* ---- Attributes ---- */

/* Returns the attribute with this name, or NULL. */
static inline const callbox_attribute *callbox_find(callbox_dictionary attributes,
                                                    const char *name) {
  size_t size = callbox_size(name);
  for (uint32_t i = 0; i < attributes.count; i++) {
    callbox_bytes found = attributes.data[i].name;
    size_t same = 0;
    while (same < size && found.size == size && found.data[same] == name[same]) same++;
    if (same == size && found.size == size) return &attributes.data[i];
  }
  return NULL;
}

/* Returns the attribute with this name and kind. If there is none, sets a failure with XLA's
 * message and returns NULL. So do the functions below; those that return a bool return false. */
static inline const callbox_attribute *callbox_get(callbox_dictionary attributes, const char *name,
                                                   callbox_attribute_kind kind) {
  const callbox_attribute *found = callbox_find(attributes, name);
  if (found == NULL) {
    callbox_message message;
    message.size = 0;
    callbox_add(&message, "Unexpected attribute: ");
    callbox_add(&message, name);
    callbox_fail_message(CALLBOX_INVALID_ARGUMENT, &message);
    return NULL;
  }
  if (found->kind == kind) return found;
  callbox_mismatch_("Wrong attribute type", callbox_attribute_kind_name((uint8_t)kind),
                    callbox_attribute_kind_name(found->kind));
  return NULL;
}

/* Returns the element of a scalar:
 *
 *     const float *n = (const float *)callbox_get_scalar(frame->attributes, "n", CALLBOX_F32);
 */
static inline const void *callbox_get_scalar(callbox_dictionary attributes, const char *name,
                                             callbox_element_type type) {
  const callbox_attribute *found = callbox_get(attributes, name, CALLBOX_KIND_SCALAR);
  if (found == NULL || found->element_type == type) return found == NULL ? NULL : found->value;
  callbox_mismatch_("Wrong scalar data type", callbox_element_type_name((uint8_t)type),
                    callbox_element_type_name(found->element_type));
  return NULL;
}

/* Returns an array of elements of this type, whose bytes are `value` and `size`. */
static inline const callbox_attribute *callbox_get_array(callbox_dictionary attributes,
                                                         const char *name,
                                                         callbox_element_type type) {
  const callbox_attribute *found = callbox_get(attributes, name, CALLBOX_KIND_ARRAY);
  if (found == NULL || found->element_type == type) return found;
  callbox_mismatch_("Wrong array data type", callbox_element_type_name((uint8_t)type),
                    callbox_element_type_name(found->element_type));
  return NULL;
}

/* Gets the bytes of a string. */
static inline bool callbox_get_string(callbox_dictionary attributes, const char *name,
                                      callbox_bytes *string) {
  const callbox_attribute *found = callbox_get(attributes, name, CALLBOX_KIND_STRING);
  if (found == NULL) return false;
  string->data = (const char *)found->value;
  string->size = found->size;
  return true;
}

/* Gets the attributes of a dictionary. */
static inline bool callbox_get_dictionary(callbox_dictionary attributes, const char *name,
                                          callbox_dictionary *dictionary) {
  const callbox_attribute *found = callbox_get(attributes, name, CALLBOX_KIND_DICTIONARY);
  if (found == NULL) return false;
  dictionary->data = (const callbox_attribute *)found->value;
  dictionary->count = found->size / (uint32_t)sizeof *dictionary->data;
  return true;
}

/* Gets the number of a function. */
static inline bool callbox_get_function(callbox_dictionary attributes, const char *name,
                                        uint32_t *function) {
  const callbox_attribute *found = callbox_get(attributes, name, CALLBOX_KIND_FUNCTION);
  if (found == NULL) return false;
  *function = *(const uint32_t *)found->value;
  return true;
}

#endif
