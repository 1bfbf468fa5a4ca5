// Each of `results` is the value of one expression of `a`, `b` and `c`. The test does the same.
extern "C" __global__ void singles(const float* a, const float* b, const float* c, float* results, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = a[i], y = b[i], z = c[i];
    float* r = results + 24 * (long long)i;
    r[0] = x + y;
    r[1] = x - y;
    r[2] = x * y;
    r[3] = x / y;
    r[4] = sqrtf(x);
    r[5] = fmaf(x, y, z);
    r[6] = fminf(x, y);
    r[7] = fmaxf(x, y);
    r[8] = fabsf(x);
    r[9] = -x;
    r[10] = copysignf(x, y);
    r[11] = floorf(x);
    r[12] = ceilf(x);
    r[13] = truncf(x);
    r[14] = rintf(x);
    r[15] = x < y ? z : x;
    r[16] = (float)(double)x;
    r[17] = isnan(x) ? 1.0f : (isinf(y) ? 2.0f : 3.0f);
    r[18] = __frcp_rn(x);
    r[19] = __saturatef(x);
    r[20] = (float)(int)x;
    r[21] = (float)(unsigned long long)(fabsf(y));
    r[22] = __fadd_rz(x, y);
    r[23] = __fmul_ru(x, y);
}

// Functions of the mathematical library, each of which is long in PTX.
extern "C" __global__ void functions(const float* a, float* results, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = a[i];
    float* r = results + 12 * (long long)i;
    r[0] = expf(x);
    r[1] = logf(fabsf(x) + 0.5f);
    r[2] = sinf(x);
    r[3] = cosf(x);
    r[4] = tanhf(x);
    r[5] = powf(fabsf(x), 1.5f);
    r[6] = rsqrtf(fabsf(x) + 0.25f);
    r[7] = __expf(x);
    r[8] = __sinf(x);
    r[9] = erff(x);
    r[10] = fmodf(x, 0.7f);
    r[11] = atan2f(x, 2.0f);
}

extern "C" __global__ void doubles(const double* a, const double* b, double* results, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double x = a[i], y = b[i];
    double* r = results + 12 * (long long)i;
    r[0] = x + y;
    r[1] = x * y;
    r[2] = x / y;
    r[3] = sqrt(fabs(x));
    r[4] = fma(x, y, x);
    r[5] = fmin(x, y);
    r[6] = exp(x);
    r[7] = sin(x);
    r[8] = (double)(long long)x;
    r[9] = (double)(float)x;
    r[10] = rint(x);
    r[11] = log(fabs(x) + 1.0);
}
