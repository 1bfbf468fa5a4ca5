// Control flow and state spaces.
__constant__ float weights[4] = {0.5f, 1.5f, -2.0f, 8.0f};
__constant__ int offsets[3];
__device__ int table[5] = {10, 20, 30, 40, 50};
__device__ int* pointers[2] = {&table[1], table + 3};
__device__ unsigned launches;

struct Pair { int first; double second; char tail[5]; };

__noinline__ __device__ int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }
__noinline__ __device__ Pair turn(Pair p, int by) {
    Pair q = p;
    q.first = p.first * by;
    q.second = p.second + by;
    q.tail[by & 3] = 'x';
    return q;
}

extern "C" __global__ void control(const int* values, int* results, Pair given, unsigned char flag) {
    int t = threadIdx.x, v = values[t];
    int* r = results + 8 * t;
    switch (v) {
        case 0: r[0] = 100; break;
        case 1: r[0] = v * t + 3; break;
        case 2: r[0] = gcd(84, t + 1); break;
        case 3: r[0] = t ? 7 : 9; break;
        case 4: r[0] = __popc(t); break;
        case 5: r[0] = values[0]; break;
        case 6: r[0] = -t; break;
        default: r[0] = -1;
    }
    r[1] = gcd(v * 6, 36);
    int steps = 0;
    for (unsigned long long n = v + 1; n != 1 && steps < 1000; ++steps) n = n % 2 ? 3 * n + 1 : n / 2;
    r[2] = steps;
    int local[9];
    for (int k = 0; k < 9; ++k) local[(k * 4) % 9] = k * v;
    r[3] = local[(unsigned)v % 9];
    r[4] = (int)(weights[v & 3] * 4.0f) + offsets[(unsigned)v % 3];
    r[5] = *pointers[v & 1] + table[(unsigned)v % 5];
    Pair turned = turn(given, v);
    r[6] = turned.first + (int)turned.second + turned.tail[v & 3] + given.tail[4];
    r[7] = flag;
    if (t == 0) atomicAdd(&launches, 1u);
}

extern "C" __global__ void indices(unsigned* results) {
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned all = blockDim.x * blockDim.y * blockDim.z;
    results[block * all + thread] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * threadIdx.x + 10000 * threadIdx.y + 100000 * threadIdx.z;
}

extern "C" int printf(const char*, ...);
extern "C" __global__ void says(int* results) {
    results[threadIdx.x] = printf("thread %d of %f\n", threadIdx.x, 2.0);
}

extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
extern "C" __global__ void asserts(int* results, int limit) {
    int t = threadIdx.x;
    if (t >= limit) __assertfail("t < limit", "control.cu", 3, "asserts", 1);
    results[t] = t;
}

extern "C" __global__ void traps(int at) {
    if (threadIdx.x == at) __trap();
}

extern "C" __global__ void no_guard(float* values) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = 1.0f;
}

extern "C" __global__ void misaligned(char* values) {
    *(int*)(values + 2) = 1;
}

extern "C" __global__ void past_shared(int* values, int at) {
    __shared__ int line[8];
    line[threadIdx.x] = values[threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = line[threadIdx.x + at];
}

extern "C" __global__ void divergent(int* values) {
    if (threadIdx.x < 3) __syncthreads();
    else while (*(volatile int*)values == 0) {}
}

extern "C" __global__ void copies(const int4* from, int4* to, const double2* a, double2* b, short4* s) {
    int t = threadIdx.x;
    int4 v = from[t];
    to[t] = make_int4(v.w, v.z, v.y, v.x);
    double2 d = __ldg(&a[t]);
    b[t] = make_double2(d.y, d.x);
    s[t] = make_short4(v.x, v.y, v.z, v.w);
}

// Work for a timing: many simple instructions.
extern "C" __global__ void spin(unsigned* values, unsigned rounds) {
    unsigned x = values[threadIdx.x];
    for (unsigned k = 0; k < rounds; ++k) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
    }
    values[threadIdx.x] = x;
}
