// Each of `results` is the value of one expression of `a` and `b`. The test repeats it in Rust.
extern "C" __global__ void integers(const int* a, const int* b, long long* results, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int x = a[i], y = b[i];
    const unsigned ux = x, uy = y;
    const long long wide = ((long long)x << 32) ^ y;
    long long* r = results + 40 * (long long)i;
    r[0] = x + y;
    r[1] = x - y;
    r[2] = x * y;
    r[3] = (long long)x * y;
    r[4] = y == 0 || (y == -1) ? 0 : x / y;
    r[5] = y == 0 || (y == -1) ? 0 : x % y;
    r[6] = uy == 0 ? 0 : ux / uy;
    r[7] = uy == 0 ? 0 : ux % uy;
    r[8] = min(x, y);
    r[9] = max(ux, uy);
    r[10] = abs(x);
    r[11] = x & y;
    r[12] = x | ~y;
    r[13] = x ^ y;
    r[14] = x << (uy & 31);
    r[15] = x >> (uy & 31);
    r[16] = ux >> (uy & 31);
    r[17] = wide >> (uy & 63);
    r[18] = __clz(x);
    r[19] = __popc(ux);
    r[20] = __brev(ux);
    r[21] = __ffs(x);
    r[22] = __byte_perm(ux, uy, 0x6172);
    r[23] = __funnelshift_l(ux, uy, 13);
    r[24] = __funnelshift_r(ux, uy, ux);
    r[25] = __mulhi(x, y);
    r[26] = __umulhi(ux, uy);
    r[27] = __mul24(x, y);
    r[28] = __sad(x, y, 7u);
    r[29] = __clzll(wide);
    r[30] = __popcll(wide);
    r[31] = __brevll(wide);
    r[32] = __mul64hi(wide, (long long)y * 0x123456789LL);
    r[33] = __umul64hi(wide, (unsigned long long)uy * 0x987654321ULL);
    r[34] = (signed char)x + (unsigned char)y;
    r[35] = (short)x * (unsigned short)y;
    r[36] = wide * 1000003LL + x;
    r[37] = (ux & uy) ^ (uy | 0x55u) ^ (ux >> 3);
    r[38] = (wide == 0) ? 1 : (0x7123456789abcdefLL / wide);
    r[39] = (wide == 0) ? 1 : (0xf123456789abcdefULL % (unsigned long long)wide);
}

// Sums and products of 128 bits, which use carry chains.
extern "C" __global__ void carries(const unsigned long long* a, const unsigned long long* b, unsigned long long* results) {
    const unsigned __int128 x = ((unsigned __int128)a[0] << 64) | a[1];
    const unsigned __int128 y = ((unsigned __int128)b[0] << 64) | b[1];
    const unsigned __int128 sum = x + y, difference = x - y, product = x * y;
    results[0] = (unsigned long long)(sum >> 64);
    results[1] = (unsigned long long)sum;
    results[2] = (unsigned long long)(difference >> 64);
    results[3] = (unsigned long long)difference;
    results[4] = (unsigned long long)(product >> 64);
    results[5] = (unsigned long long)product;
}
