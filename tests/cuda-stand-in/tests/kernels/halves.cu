// 16-bit numbers, with NVIDIA's own headers.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void half_sums(const __half* a, const __half* b, __half* results, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half x = a[i], y = b[i];
    __half* r = results + 8 * i;
    r[0] = x + y;
    r[1] = x * y;
    r[2] = __hfma(x, y, x);
    r[3] = __float2half(__half2float(x) * 3.0f);
    r[4] = __hmax(x, y);
    r[5] = __hlt(x, y) ? x : y;
    r[6] = __int2half_rn(__half2int_rz(x));
    r[7] = x / y;
}

extern "C" __global__ void half_pairs(const __half2* a, const __half2* b, __half2* results) {
    int i = threadIdx.x;
    results[4 * i] = __hadd2(a[i], b[i]);
    results[4 * i + 1] = __hfma2(a[i], b[i], a[i]);
    results[4 * i + 2] = __hneg2(a[i]);
    results[4 * i + 3] = __lowhigh2highlow(__hmul2(a[i], b[i]));
}

// On this architecture bf16 is emulated with integer and f32 instructions.
extern "C" __global__ void brains(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* results) {
    int i = threadIdx.x;
    __nv_bfloat16* r = results + 3 * i;
    r[0] = a[i] + b[i];
    r[1] = a[i] * b[i];
    r[2] = __float2bfloat16(__bfloat162float(a[i]) * 0.3f);
}
