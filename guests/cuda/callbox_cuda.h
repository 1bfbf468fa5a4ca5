/* Custom calls of the platform "CUDA" before typed FFI, in libraries that callbox loads:
 *
 *     void do_custom_call(CUstream stream, void **buffers, const char *opaque, size_t opaque_len);
 *     void do_custom_call(CUstream stream, void **buffers, const char *opaque, size_t opaque_len,
 *                         XlaCustomCallStatus *status);
 *
 * The first is API_VERSION_ORIGINAL, the second API_VERSION_STATUS_RETURNING and
 * API_VERSION_STATUS_RETURNING_UNIFIED. Each exported function is a target with its name. README.md
 * describes the layouts of `buffers`.
 *
 * A target runs on the CPU and enqueues work on the stream, whose context is current. This header
 * launches kernels from PTX without CUDA's headers or libraries: it opens the driver when it is
 * first used.
 */
#ifndef CALLBOX_CUDA_H
#define CALLBOX_CUDA_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#define CALLBOX_CUDA_ASSERT_ static_assert
#else
#define CALLBOX_CUDA_ASSERT_ _Static_assert
#endif

/* The driver's types, unless its own header was included before this one. */
#ifndef __cuda_cuda_h__
typedef int CUresult;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
#endif

/* ---- The status ---- */

/* Opaque. A target passes it on during its call. */
typedef struct XlaCustomCallStatus_ XlaCustomCallStatus;

/* callbox's functions for a status. A library cannot be linked against the program that loads it,
 * so that it is given pointers to them. */
struct callbox_status_api {
  /* Fails the call with the message's first `len` bytes, or those before its first NUL, which are
   * copied. */
  void (*set_failure)(XlaCustomCallStatus *status, const char *message, size_t len);
  /* Revokes a failure. */
  void (*set_success)(XlaCustomCallStatus *status);
};

/* Each library exports this variable. callbox sets it after it has loaded the library, before it
 * calls a target. */
__attribute__((weak, visibility("default"))) const struct callbox_status_api *callbox_status_api;

static inline void XlaCustomCallStatusSetFailure(XlaCustomCallStatus *status, const char *message, size_t message_len) {
  if (callbox_status_api != NULL) callbox_status_api->set_failure(status, message, message_len);
}

static inline void XlaCustomCallStatusSetSuccess(XlaCustomCallStatus *status) {
  if (callbox_status_api != NULL) callbox_status_api->set_success(status);
}

/* ---- Registration ---- */

/* Every exported function is a target, so that this macro only checks the platform. */
#define XLA_REGISTER_CUSTOM_CALL_TARGET(function, platform) \
  CALLBOX_CUDA_ASSERT_(__builtin_strcmp(platform, "CUDA") == 0, "a library has targets of the platform \"CUDA\" only: " #function " is of another")

/* ---- The driver ---- */

/* The driver functions that this header uses, named without their versions. */
struct callbox_cuda_driver {
  CUresult (*cuCtxGetCurrent)(CUcontext *context);
  CUresult (*cuModuleLoadData)(CUmodule *module, const void *image);
  CUresult (*cuModuleGetFunction)(CUfunction *function, CUmodule module, const char *name);
  CUresult (*cuLaunchKernel)(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                             unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra);
  CUresult (*cuMemcpyDtoHAsync)(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
  CUresult (*cuMemcpyHtoDAsync)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
  CUresult (*cuStreamSynchronize)(CUstream stream);
  /* The name of a missing function, or null. */
  const char *missing;
};

static struct callbox_cuda_driver callbox_cuda_driver_;
static pthread_once_t callbox_cuda_once_ = PTHREAD_ONCE_INIT;

static inline void callbox_cuda_open_(void) {
  struct callbox_cuda_driver *driver = &callbox_cuda_driver_;
  /* The same order as callbox's, so that the process has only one driver. */
  void *library = dlopen("libcuda.so", RTLD_NOW);
  if (library == NULL) library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    driver->missing = "libcuda.so.1";
    return;
  }
/* ISO C does not convert the object pointer that dlsym returns to a function pointer. */
#define CALLBOX_CUDA_SYMBOL_(function, symbol)                      \
  do {                                                              \
    *(void **)&driver->function = dlsym(library, symbol);           \
    if (*(void **)&driver->function == NULL) driver->missing = symbol; \
  } while (0)
  CALLBOX_CUDA_SYMBOL_(cuCtxGetCurrent, "cuCtxGetCurrent");
  CALLBOX_CUDA_SYMBOL_(cuModuleLoadData, "cuModuleLoadData");
  CALLBOX_CUDA_SYMBOL_(cuModuleGetFunction, "cuModuleGetFunction");
  CALLBOX_CUDA_SYMBOL_(cuLaunchKernel, "cuLaunchKernel");
  CALLBOX_CUDA_SYMBOL_(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  CALLBOX_CUDA_SYMBOL_(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  CALLBOX_CUDA_SYMBOL_(cuStreamSynchronize, "cuStreamSynchronize");
#undef CALLBOX_CUDA_SYMBOL_
}

/* Fails the call with a text. Without a status (NULL, for API_VERSION_ORIGINAL), it is only
 * printed. */
static inline void callbox_cuda_fail(XlaCustomCallStatus *status, const char *text) {
  if (status == NULL) {
    fprintf(stderr, "callbox_cuda: %s\n", text);
    return;
  }
  XlaCustomCallStatusSetFailure(status, text, __builtin_strlen(text));
}

/* Returns whether a driver function succeeded. If not, fails the call with its name and error. */
static inline bool callbox_cuda_ok(CUresult result, const char *function, XlaCustomCallStatus *status) {
  char text[160];
  if (result == 0) return true;
  snprintf(text, sizeof text, "%s failed with CUDA error %d", function, (int)result);
  callbox_cuda_fail(status, text);
  return false;
}

/* Returns the driver. Without one, returns NULL and fails the call. */
static inline const struct callbox_cuda_driver *callbox_cuda_driver_or_fail(XlaCustomCallStatus *status) {
  char text[160];
  pthread_once(&callbox_cuda_once_, callbox_cuda_open_);
  if (callbox_cuda_driver_.missing == NULL) return &callbox_cuda_driver_;
  snprintf(text, sizeof text, "expected the CUDA driver, found no %s", callbox_cuda_driver_.missing);
  callbox_cuda_fail(status, text);
  return NULL;
}

/* ---- Kernels ---- */

/* The most contexts, one for each device in use, that an image is kept for. */
enum { CALLBOX_CUDA_CONTEXTS = 16 };

/* An image, such as PTX, and the module that was loaded from it in each context. A context must
 * outlive the library's use: callbox and XLA use the device's primary one, which exists while
 * either has the device open. */
struct callbox_cuda_image {
  const void *data;
  pthread_mutex_t lock;
  unsigned count;
  struct {
    CUcontext context;
    CUmodule module;
  } loaded[CALLBOX_CUDA_CONTEXTS];
};

#define CALLBOX_CUDA_IMAGE(data) {(data), PTHREAD_MUTEX_INITIALIZER, 0, {{0, 0}}}

/* Returns the image's module in the current context. If it cannot be loaded, returns NULL and fails
 * the call. */
static inline CUmodule callbox_cuda_module_(struct callbox_cuda_image *image, const struct callbox_cuda_driver *driver,
                                            XlaCustomCallStatus *status) {
  CUcontext context = NULL;
  CUmodule module = NULL;
  if (!callbox_cuda_ok(driver->cuCtxGetCurrent(&context), "cuCtxGetCurrent", status)) return NULL;
  pthread_mutex_lock(&image->lock);
  for (unsigned i = 0; i < image->count; i++)
    if (image->loaded[i].context == context) module = image->loaded[i].module;
  if (module == NULL && image->count == CALLBOX_CUDA_CONTEXTS) {
    callbox_cuda_fail(status, "expected no more than 16 CUDA contexts");
  } else if (module == NULL && callbox_cuda_ok(driver->cuModuleLoadData(&module, image->data), "cuModuleLoadData", status)) {
    image->loaded[image->count].context = context;
    image->loaded[image->count].module = module;
    image->count++;
  }
  pthread_mutex_unlock(&image->lock);
  return module;
}

/* Launches a kernel of an image on a stream, with one dimension of blocks and threads. `parameters`
 * are the addresses of the kernel's parameters. Returns whether it succeeded; if not, the call has
 * failed. */
static inline bool callbox_cuda_launch(struct callbox_cuda_image *image, const char *kernel, unsigned grid, unsigned block, CUstream stream,
                                       void **parameters, XlaCustomCallStatus *status) {
  CUfunction function = NULL;
  const struct callbox_cuda_driver *driver = callbox_cuda_driver_or_fail(status);
  CUmodule module = driver == NULL ? NULL : callbox_cuda_module_(image, driver, status);
  return module != NULL && callbox_cuda_ok(driver->cuModuleGetFunction(&function, module, kernel), "cuModuleGetFunction", status) &&
         callbox_cuda_ok(driver->cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, parameters, NULL), "cuLaunchKernel", status);
}

/* ---- Copies ---- */

/* Copies from the device, and waits for the stream. Not possible while the stream is captured. */
static inline bool callbox_cuda_read(void *to, const void *from, size_t bytes, CUstream stream, XlaCustomCallStatus *status) {
  const struct callbox_cuda_driver *driver = callbox_cuda_driver_or_fail(status);
  return driver != NULL &&
         callbox_cuda_ok(driver->cuMemcpyDtoHAsync(to, (CUdeviceptr)(uintptr_t)from, bytes, stream), "cuMemcpyDtoHAsync", status) &&
         callbox_cuda_ok(driver->cuStreamSynchronize(stream), "cuStreamSynchronize", status);
}

/* Copies to the device, and waits, so that `from` may be freed. Not possible while the stream is
 * captured. */
static inline bool callbox_cuda_write(void *to, const void *from, size_t bytes, CUstream stream, XlaCustomCallStatus *status) {
  const struct callbox_cuda_driver *driver = callbox_cuda_driver_or_fail(status);
  return driver != NULL &&
         callbox_cuda_ok(driver->cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, from, bytes, stream), "cuMemcpyHtoDAsync", status) &&
         callbox_cuda_ok(driver->cuStreamSynchronize(stream), "cuStreamSynchronize", status);
}

#ifdef __cplusplus
}
#endif

#endif
