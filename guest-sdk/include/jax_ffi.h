/* Foreign functions of the JAX FFI proposal (October 2022): the header that the proposal's examples
 * expect from JAX.
 *
 *     #include "jax_ffi.h"
 *
 *     void add_n(JaxFFI_API* api, JaxFFIStatus* status, void* static_info,
 *                void** outputs, void** inputs) { ... }
 *     JAX_FFI_EXPORT_OUTPUTS_FIRST(add_n);
 *
 * CHECK THE ORDER of a pasted example. The proposal declares `void** inputs, void** outputs` in its
 * first example and `void** outputs, void** inputs` in all others. Both have the same type, so that
 * the compiler cannot tell them apart, and a function that is exported with the wrong order reads
 * its outputs and overwrites its inputs. Each order therefore has its own macro:
 *
 *     void add_n(JaxFFI_API* api, JaxFFIStatus* status, void* static_info,
 *                void** inputs, void** outputs) { ... }
 *     JAX_FFI_EXPORT_INPUTS_FIRST(add_n);
 */
#ifndef CALLBOX_JAX_FFI_H
#define CALLBOX_JAX_FFI_H

#include "callbox.h"

/* The names of capsules, by which a function for the wrong platform is refused. */
#define JAX_FFI_CALL_CPU "JAX_FFI_CALL_CPU"
#define JAX_FFI_CALL_CUDA "JAX_FFI_CALL_CUDA"

/* An entry of the array of function pointers that a function gets as `api`. */
typedef void *JaxFFI_API;

/* The status of the call. It is opaque: the host keeps it. */
typedef struct JaxFFIStatus JaxFFIStatus;

/* Returns the version of the API, in a function whose parameter is called `api`, as in the
 * proposal. The proposal's own macro casts the function to one that returns nothing. */
#define JaxFFIVersion() (((int (*)(void))((api)[0]))())

/* Fails the call with this message. */
#define JaxFFIStatusSetFailure(api, status, msg) \
  (((void (*)(JaxFFIStatus *, const char *))((api)[1]))(status, msg))

/* Fails the call with this message, and tells the caller that other inputs can succeed: the extra
 * bit that the proposal considers. */
#define JaxFFIStatusSetRecoverableFailure(api, status, msg) \
  (((void (*)(JaxFFIStatus *, const char *))((api)[2]))(status, msg))

/* Exports a function `(api, status, static_info, outputs, inputs)` under its name. */
#define JAX_FFI_EXPORT_OUTPUTS_FIRST(function)            \
  JAX_FFI_ORDER_(#function ".outputs-first", __COUNTER__) \
  CALLBOX_EXPORT(function, #function)

/* Exports a function `(api, status, static_info, inputs, outputs)` under its name. The export takes
 * outputs first, as the host calls it, and swaps the two. */
#define JAX_FFI_EXPORT_INPUTS_FIRST(function)            \
  JAX_FFI_ORDER_(#function ".inputs-first", __COUNTER__) \
  JAX_FFI_SWAPPED_(function, #function, __COUNTER__)

/* Records the order in an export, which the host requires of modules with this header. */
#define JAX_FFI_ORDER_(name, number) JAX_FFI_DEFINE_ORDER_(name, number)
#define JAX_FFI_DEFINE_ORDER_(name, number)                                               \
  CALLBOX_EXTERN_C void callbox_order_##number(void) __asm__("callbox_order." name);      \
  CALLBOX_EXTERN_C __attribute__((used, export_name(name))) void callbox_order_##number(  \
      void) {}

#define JAX_FFI_SWAPPED_(function, name, number) JAX_FFI_DEFINE_SWAPPED_(function, name, number)
#define JAX_FFI_DEFINE_SWAPPED_(function, name, number)                                          \
  CALLBOX_EXTERN_C void callbox_swapped_##number(JaxFFI_API *, JaxFFIStatus *, void *, void **,  \
                                                 void **) __asm__("callbox_swapped." name);      \
  CALLBOX_EXTERN_C __attribute__((used, export_name(name))) void callbox_swapped_##number(       \
      JaxFFI_API *api, JaxFFIStatus *status, void *static_info, void **outputs, void **inputs) { \
    function(api, status, static_info, inputs, outputs);                                         \
  }                                                                                              \
  CALLBOX_ASSERT(sizeof(&function) == 4)

/* Refuses to guess the order. */
#define JAX_FFI_EXPORT(function)                                                                  \
  CALLBOX_STATIC_ASSERT(0,                                                                        \
                        "use JAX_FFI_EXPORT_OUTPUTS_FIRST or JAX_FFI_EXPORT_INPUTS_FIRST: check " \
                        "which of `outputs` and `inputs` the function takes first")

/* Exports the constructor and the destructor of a static info that is passed by reference.
 * `void *make(const void *data, size_t size)` returns the object, or null, which fails the call.
 * `void drop(void *info)` runs once for each object, when the executable is dropped. */
#define JAX_FFI_EXPORT_STATIC_INFO(make, drop) \
  CALLBOX_EXPORT(make, #make);                 \
  CALLBOX_EXPORT(drop, #drop)

/* The functions behind the macros above. */
static inline int JaxFFIVersionFn(void) { return 1; }

static inline void JaxFFIStatusSetFailureFn(JaxFFIStatus *status, const char *message) {
  (void)status;
  callbox_set_failure(CALLBOX_INTERNAL, message, callbox_size(message), false);
}

static inline void JaxFFIStatusSetRecoverableFailureFn(JaxFFIStatus *status, const char *message) {
  (void)status;
  callbox_set_failure(CALLBOX_INTERNAL, message, callbox_size(message), true);
}

/* Says that each function records its order. A function that is exported by other means than the
 * macros above is refused. */
CALLBOX_EXTERN_C __attribute__((weak, used, export_name("jax-ffi-orders"))) void
callbox_jax_ffi_orders(void) {}

/* Returns `api` to the host. Function pointers are indices into the module's own table, so that the
 * host cannot make them. The function is weak because every source that includes this header
 * defines it. */
CALLBOX_EXTERN_C __attribute__((weak, used, export_name("jax-ffi-api"))) JaxFFI_API *
callbox_jax_ffi_api(void) {
  static JaxFFI_API table[] = {(void *)&JaxFFIVersionFn, (void *)&JaxFFIStatusSetFailureFn,
                               (void *)&JaxFFIStatusSetRecoverableFailureFn};
  return table;
}

#endif
