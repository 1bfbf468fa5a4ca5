// The kernels of the targets of conventions.c on the GPU. callbox.json declares some of the
// targets; ../cuda/conventions.c launches the kernels of the others.

// a[i] = b[i % period] + c[i]: the documents' first example, for any sizes.
extern "C" __global__ void custom_call(const float *__restrict__ b, const float *__restrict__ c, float *__restrict__ a, size_t period,
                                       size_t elements) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += stride) a[i] = b[i % period] + c[i];
}

// Each of the following is launched with a thread for each element.

extern "C" __global__ void ones(float *y) { y[threadIdx.x] = 1; }

extern "C" __global__ void six(const float *__restrict__ x, float *__restrict__ y) { y[threadIdx.x] = x[threadIdx.x]; }

extern "C" __global__ void twice(const float *__restrict__ x, float *__restrict__ y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }

// Writes twice the operand to `temp`, and one more than that to y.
extern "C" __global__ void scratch(const float *__restrict__ x, float *__restrict__ y, float *__restrict__ temp) {
  temp[threadIdx.x] = 2 * x[threadIdx.x];
  y[threadIdx.x] = 1 + temp[threadIdx.x];
}

// Adds one in place. x and y must be the same address, which the device checks: NaN if they differ.
extern "C" __global__ void in_place(const float *x, float *y) {
  y[threadIdx.x] = x == y ? y[threadIdx.x] + 1 : __int_as_float(0x7fc00000);
}

// Writes whether there are an empty tuple and a token, and the integer part of x. One thread.
extern "C" __global__ void empty_tuple_and_token(int *seen, int tuple, int token, const float *x) {
  seen[0] = tuple;
  seen[1] = token;
  seen[2] = (int)*x;
}

// One thread.
extern "C" __global__ void set_s32(int *y, int value) { *y = value; }

// One thread.
extern "C" __global__ void set_f32(float *y, float value) { *y = value; }
