/* The foreign functions of the JAX FFI proposal (October 2022): what it calls the header that comes from JAX.
 *
 *     #include "jax_ffi.h"
 *
 *     void add_n(JaxFFI_API* api, JaxFFIStatus* status, void* static_info, void** outputs, void** inputs) { ... }
 *     JAX_FFI_EXPORT(add_n);
 *
 * Outputs come before inputs. The proposal has both orders: this one wherever it says what a user's function looks like, the other in its
 * first example and in the wrapper that calls one.
 */
#ifndef CALLBOX_JAX_FFI_H
#define CALLBOX_JAX_FFI_H

#include "callbox.h"

/* What a capsule of a function is called, so that one for the wrong platform is refused. */
#define JAX_FFI_CALL_CPU "JAX_FFI_CALL_CPU"
#define JAX_FFI_CALL_CUDA "JAX_FFI_CALL_CUDA"

/* An entry of the array of function pointers that a function gets as `api`. */
typedef void *JaxFFI_API;

/* Opaque: there is one status for each call, and the host has it. */
typedef struct JaxFFIStatus JaxFFIStatus;

/* The version of the API, from a function that calls its parameter `api`, as the proposal writes it. There the
 * macro calls it as if it returned nothing. */
#define JaxFFIVersion() (((int (*)(void))((api)[0]))())

/* Fails the call with this text. */
#define JaxFFIStatusSetFailure(api, status, msg) (((void (*)(JaxFFIStatus *, const char *))((api)[1]))(status, msg))

/* The same, and says that a call with other inputs can succeed: the extra bit that the proposal considers. */
#define JaxFFIStatusSetRecoverableFailure(api, status, msg) (((void (*)(JaxFFIStatus *, const char *))((api)[2]))(status, msg))

/* Exports a function under its name. */
#define JAX_FFI_EXPORT(function) CALLBOX_EXPORT(function, #function)

/* Exports what makes a static info that is passed by reference, `void *make(const void *data, size_t size)`, and what takes it back,
 * `void drop(void *info)`: once, when the executable goes. A null pointer says that there is none, and the call fails. */
#define JAX_FFI_EXPORT_STATIC_INFO(make, drop) \
  JAX_FFI_EXPORT(make);                        \
  JAX_FFI_EXPORT(drop)

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

/* Where the host asks for `api`: function pointers of a module are numbers that mean nothing outside it. Weak, for there is one in each source
 * that includes this. */
CALLBOX_EXTERN_C __attribute__((weak, used, export_name("jax-ffi-api"))) JaxFFI_API *callbox_jax_ffi_api(void) {
  static JaxFFI_API table[] = {(void *)&JaxFFIVersionFn, (void *)&JaxFFIStatusSetFailureFn, (void *)&JaxFFIStatusSetRecoverableFailureFn};
  return table;
}

#endif
