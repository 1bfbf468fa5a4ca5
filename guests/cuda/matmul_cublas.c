// "It could also do something else, like call cublas": a target that enqueues a library's work.
// C[m,n] = A[m,k] * B[k,n], f32, row-major. The opaque bytes are m, k and n, each an int32.
//
// cuBLAS is opened when the target is first called. Without it, the call fails.
#include <string.h>

#include "callbox_cuda.h"

typedef struct cublasContext* cublasHandle_t;

static struct {
  int (*create)(cublasHandle_t* handle);
  int (*set_stream)(cublasHandle_t handle, CUstream stream);
  int (*sgemm)(cublasHandle_t handle, int transa, int transb, int m, int n, int k, const float* alpha, const float* a, int lda, const float* b,
               int ldb, const float* beta, float* c, int ldc);
  const char* missing;
} cublas;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_cublas(void) {
  static const char* const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
  void* library = NULL;
  for (unsigned i = 0; i < sizeof names / sizeof *names && library == NULL; i++) library = dlopen(names[i], RTLD_NOW);
  if (library == NULL) {
    cublas.missing = "libcublas.so.13, libcublas.so.12 or libcublas.so";
    return;
  }
  *(void**)&cublas.create = dlsym(library, "cublasCreate_v2");
  *(void**)&cublas.set_stream = dlsym(library, "cublasSetStream_v2");
  *(void**)&cublas.sgemm = dlsym(library, "cublasSgemm_v2");
  if (cublas.create == NULL || cublas.set_stream == NULL || cublas.sgemm == NULL) cublas.missing = "cublasCreate_v2, cublasSetStream_v2 or cublasSgemm_v2";
}

// A handle belongs to one context and has one stream at a time: each context has a handle, which
// calls use in turn.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  CUcontext context;
  cublasHandle_t handle;
} handles[CALLBOX_CUDA_CONTEXTS];

static cublasHandle_t handle_of(CUcontext context, XlaCustomCallStatus* status) {
  for (unsigned i = 0; i < CALLBOX_CUDA_CONTEXTS; i++) {
    if (handles[i].handle != NULL && handles[i].context == context) return handles[i].handle;
    if (handles[i].handle != NULL) continue;
    if (cublas.create(&handles[i].handle) != 0) {
      handles[i].handle = NULL;
      callbox_cuda_fail(status, "cublasCreate failed");
      return NULL;
    }
    handles[i].context = context;
    return handles[i].handle;
  }
  callbox_cuda_fail(status, "expected no more than 16 CUDA contexts");
  return NULL;
}

void matmul_cublas(CUstream stream, void** buffers, const char* opaque, size_t opaque_len, XlaCustomCallStatus* status) {
  int32_t sizes[3];
  if (opaque_len != sizeof sizes) {
    callbox_cuda_fail(status, "expected m, k and n as three int32 in the opaque bytes");
    return;
  }
  memcpy(sizes, opaque, sizeof sizes);
  int m = sizes[0], k = sizes[1], n = sizes[2];
  if (m < 1 || k < 1 || n < 1) {
    callbox_cuda_fail(status, "expected m, k and n of 1 and more");
    return;
  }
  pthread_once(&once, open_cublas);
  if (cublas.missing != NULL) {
    char text[160];
    snprintf(text, sizeof text, "expected cuBLAS, found no %s", cublas.missing);
    callbox_cuda_fail(status, text);
    return;
  }
  CUcontext context = NULL;
  const struct callbox_cuda_driver* driver = callbox_cuda_driver_or_fail(status);
  if (driver == NULL || !callbox_cuda_ok(driver->cuCtxGetCurrent(&context), "cuCtxGetCurrent", status)) return;

  const float one = 1, zero = 0;
  pthread_mutex_lock(&lock);
  cublasHandle_t handle = handle_of(context, status);
  // cuBLAS is column-major: a row-major matrix is the transpose of a column-major one, and the
  // transpose of a product is the product of the transposed factors in reverse order.
  if (handle != NULL && (cublas.set_stream(handle, stream) != 0 ||
                         cublas.sgemm(handle, 0, 0, n, m, k, &one, buffers[1], n, buffers[0], k, &zero, buffers[2], n) != 0))
    callbox_cuda_fail(status, "cublasSgemm failed");
  pthread_mutex_unlock(&lock);
}
XLA_REGISTER_CUSTOM_CALL_TARGET(matmul_cublas, "CUDA");
