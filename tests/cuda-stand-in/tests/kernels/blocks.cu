// Collective operations of a block's threads.
extern "C" __global__ void block_sum(const float* values, float* sums, int n) {
    __shared__ float part[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = i < n ? values[i] : 0.0f;
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffu, value, distance);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < (blockDim.x + 31) / 32 ? part[threadIdx.x] : 0.0f;
        for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
        if (threadIdx.x == 0) sums[blockIdx.x] = value;
    }
}

// Reverses each block's values through dynamic shared memory.
extern "C" __global__ void reverse(int* values) {
    extern __shared__ int lines[];
    int t = threadIdx.x, base = blockIdx.x * blockDim.x;
    lines[t] = values[base + t];
    __syncthreads();
    values[base + t] = lines[blockDim.x - 1 - t];
}

// A prefix sum with a barrier in each step.
extern "C" __global__ void prefix(unsigned* values) {
    __shared__ unsigned line[256];
    int t = threadIdx.x;
    line[t] = values[t];
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        unsigned before = t >= step ? line[t - step] : 0;
        __syncthreads();
        line[t] += before;
        __syncthreads();
    }
    values[t] = line[t];
}

extern "C" __global__ void votes(const int* values, unsigned* results) {
    int t = threadIdx.x, v = values[t];
    unsigned* r = results + 12 * t;
    r[0] = __ballot_sync(0xffffffffu, v > 0);
    r[1] = __all_sync(0xffffffffu, v > -100);
    r[2] = __any_sync(0xffffffffu, v == 7);
    r[3] = __shfl_sync(0xffffffffu, v, 3);
    r[4] = __shfl_up_sync(0xffffffffu, v, 1);
    r[5] = __shfl_sync(0xffffffffu, v, t + 1, 8);
    r[6] = __syncthreads_count(v > 0);
    r[7] = __syncthreads_or(v == 7);
    r[8] = __syncthreads_and(v > -100);
    r[9] = __match_any_sync(0xffffffffu, v & 3);
    unsigned mine = 0;
    if (v > 0) mine = __activemask();
    __syncwarp();
    r[10] = mine;
    if (t % 2) r[11] = __shfl_xor_sync(0xaaaaaaaau, v, 2);
    else r[11] = __shfl_xor_sync(0x55555555u, v, 4);
}

// One half of a warp hands values to the other: the halves are at different instructions.
extern "C" __global__ void halves(int* values) {
    int t = threadIdx.x;
    int swapped;
    if (t < 16) swapped = __shfl_xor_sync(0xffffffffu, values[t] * 3, 16);
    else swapped = __shfl_xor_sync(0xffffffffu, values[t] + 1000, 16);
    values[t] = swapped;
}

extern "C" __global__ void atomics(const int* values, int* i32, unsigned* u32, unsigned long long* u64, float* f32, double* f64, int n) {
    __shared__ int count;
    __shared__ unsigned long long most;
    if (threadIdx.x == 0) { count = 0; most = 0; }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int v = values[i];
        atomicAdd(&i32[0], v);
        atomicMin(&i32[1], v);
        atomicMax(&i32[2], v);
        atomicSub(&i32[3], v);
        atomicAnd(&u32[0], (unsigned)v);
        atomicOr(&u32[1], (unsigned)v);
        atomicXor(&u32[2], (unsigned)v);
        atomicInc(&u32[3], 9u);
        atomicDec(&u32[4], 6u);
        atomicMin(&u32[5], (unsigned)v);
        if (atomicExch(&u32[6], (unsigned)v) == 0xffffffffu) u32[7] = i;
        atomicAdd(&u64[0], (unsigned long long)v);
        atomicMax(&u64[1], (unsigned long long)(unsigned)v);
        atomicAdd(&f32[0], (float)v);
        atomicAdd(&f64[0], (double)v * 0.5);
        atomicAdd(&count, 1);
        atomicMax(&most, (unsigned long long)(unsigned)v);
        // A maximum of floats, by comparison and exchange.
        int* place = (int*)&f32[1];
        int old = *place;
        while (__int_as_float(old) < (float)v) {
            int seen = atomicCAS(place, old, __float_as_int((float)v));
            if (seen == old) break;
            old = seen;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) { atomicAdd(&i32[4], count); atomicMax(&u64[2], most); }
}

// A lock within a block: a thread waits for another one.
extern "C" __global__ void lock(int* guard, int* counter) {
    for (bool done = false; !done;) {
        if (atomicCAS(guard, 0, 1) == 0) {
            int seen = *(volatile int*)counter;
            __threadfence();
            *(volatile int*)counter = seen + 1;
            __threadfence();
            atomicExch(guard, 0);
            done = true;
        }
    }
}
