// The twins on the GPU of those targets that a manifest can describe. callbox.json says how they
// are launched.

// Calls `body` with each index below `elements`, spread over the threads of the grid.
template <class Body>
__device__ void for_each(size_t elements, Body body) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += stride) body(i);
}

// scalars: the attributes as F64. One thread.
extern "C" __global__ void scalars(double *y, unsigned char pred, signed char s8, short s16, int s32, long long s64, unsigned char u8, unsigned short u16,
                                   unsigned u32, unsigned long long u64, float f32, double f64) {
  y[0] = pred;
  y[1] = s8;
  y[2] = s16;
  y[3] = s32;
  y[4] = (double)s64;
  y[5] = u8;
  y[6] = u16;
  y[7] = u32;
  y[8] = (double)u64;
  y[9] = f32;
  y[10] = f64;
}

// optional: the lengths of three operands. One thread.
extern "C" __global__ void lengths(long long *y, long long x, long long bias, long long any) {
  y[0] = x;
  y[1] = bias;
  y[2] = any;
}

// optional: fills the second result with the first element of `bias`.
extern "C" __global__ void fill_with_first(const float *__restrict__ bias, float *__restrict__ extra, size_t elements) {
  for_each(elements, [=](size_t i) { extra[i] = bias[0]; });
}

// optional: fills the second result with zeros.
extern "C" __global__ void fill_with_zero(float *extra, size_t elements) {
  for_each(elements, [=](size_t i) { extra[i] = 0; });
}

// copy_any: copies bytes.
extern "C" __global__ void copy_bytes(const unsigned char *__restrict__ x, unsigned char *__restrict__ y, size_t bytes) {
  for_each(bytes, [=](size_t i) { y[i] = x[i]; });
}

// scale for F16: the product is rounded to F32, and then to F16.
extern "C" __global__ void scale_f16(const unsigned short *__restrict__ x, unsigned short *__restrict__ y, size_t elements, float factor) {
  for_each(elements, [=](size_t i) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x[i]));
    unsigned short narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(wide * factor));
    y[i] = narrow;
  });
}

// BF16 is the upper half of F32. Rounds to nearest, ties to even; NaN stays NaN.
static __device__ unsigned short to_bf16(float value) {
  unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (unsigned short)(bits >> 16 | 0x40);
  return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// scale for BF16.
extern "C" __global__ void scale_bf16(const unsigned short *__restrict__ x, unsigned short *__restrict__ y, size_t elements, float factor) {
  for_each(elements, [=](size_t i) { y[i] = to_bf16(__uint_as_float((unsigned)x[i] << 16) * factor); });
}

// conjugate for C64.
extern "C" __global__ void conjugate_c64(const float2 *__restrict__ x, float2 *__restrict__ y, size_t elements) {
  for_each(elements, [=](size_t i) { y[i] = make_float2(x[i].x, -x[i].y); });
}

// conjugate for C128.
extern "C" __global__ void conjugate_c128(const double2 *__restrict__ x, double2 *__restrict__ y, size_t elements) {
  for_each(elements, [=](size_t i) { y[i] = make_double2(x[i].x, -x[i].y); });
}

// scratch, first: reverses x into scratch memory.
extern "C" __global__ void reverse(const float *__restrict__ x, float *__restrict__ copy, size_t elements) {
  for_each(elements, [=](size_t i) { copy[elements - 1 - i] = x[i]; });
}

// scratch, second: copies scratch memory to y.
extern "C" __global__ void copy_f32(const float *__restrict__ copy, float *__restrict__ y, size_t elements) {
  for_each(elements, [=](size_t i) { y[i] = copy[i]; });
}
