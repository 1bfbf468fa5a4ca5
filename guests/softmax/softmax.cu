// The twin of callbox-maths' softmax on the GPU, with one block per row. callbox.json says
// how it is launched.
//
// The exponential is the CPU's, bit for bit if products are not fused with sums (--fmad=false).
// Sums are F64 and in a fixed order, so that results are reproducible.

// Threads in a block: a power of two.
enum : unsigned { THREADS = 256 };

// The polynomial in r with these coefficients, from the highest power to the lowest.
template <class T>
__device__ T horner(T, T q) {
  return q;
}

template <class T, class... Rest>
__device__ T horner(T r, T q, T next, Rest... rest) {
  return horner(r, q * r + next, rest...);
}

// The constants of the two types, as in host/maths/src/rows/real.rs.
struct F32 {
  using Element = float;
  using Bits = unsigned;
  enum { mantissa = 23 };
  static __device__ constexpr float lowest() { return -128.0f; }
  static __device__ constexpr float log2_e() { return 1.44269504088896340736f; }
  static __device__ constexpr float round() { return 1.5f * (1 << 23) + (127 + 64); }
  static __device__ constexpr float ln2_upper() { return 355.0f / 512.0f; }
  static __device__ constexpr float ln2_lower() { return -2.1219444e-4f; }
  static __device__ float polynomial(float r) { return horner(r, 1.3814599e-3f, 8.368717e-3f, 4.166839e-2f, 0.1666652f, 0.49999994f); }
  static __device__ Bits bits(float value) { return __float_as_uint(value); }
  static __device__ float of_bits(Bits bits) { return __uint_as_float(bits); }
  static __device__ float negative_infinity() { return of_bits(0xff800000); }
};

struct F64 {
  using Element = double;
  using Bits = unsigned long long;
  enum { mantissa = 52 };
  static __device__ constexpr double lowest() { return -768.0; }
  static __device__ constexpr double log2_e() { return 1.44269504088896340736; }
  static __device__ constexpr double round() { return 1.5 * (1ULL << 52) + (1023 + 512); }
  static __device__ constexpr double ln2_upper() { return 22713.0 / 32768.0; }
  static __device__ constexpr double ln2_lower() { return 1.4286068203094173e-6; }
  static __device__ double polynomial(double r) {
    return horner(r, 2.5000061602835667e-8, 2.763024837921144e-7, 2.7557586373840164e-6, 2.480149309890655e-5, 1.9841269509578687e-4,
                  1.3888888943630113e-3, 8.333333333494462e-3, 4.166666666653016e-2, 0.16666666666666412, 0.5000000000000011);
  }
  static __device__ Bits bits(double value) { return (Bits)__double_as_longlong(value); }
  static __device__ double of_bits(Bits bits) { return __longlong_as_double((long long)bits); }
  static __device__ double negative_infinity() { return of_bits(0xfff0000000000000); }
};

// e^t times a power of two, for t <= 0 or NaN. The power of two keeps results normal that would
// otherwise be subnormal.
template <class Real>
__device__ typename Real::Element exp_scaled(typename Real::Element t) {
  using Element = typename Real::Element;
  t = t < Real::lowest() ? Real::lowest() : t;  // In this order a NaN stays one.
  Element shifted = t * Real::log2_e() + Real::round();
  Element k = shifted - Real::round();
  Element r = (t - k * Real::ln2_upper()) - k * Real::ln2_lower();
  Element q = Real::polynomial(r);
  Element power_of_two = Real::of_bits(Real::bits(shifted) << Real::mantissa);
  return ((r * r * q + r) + 1) * power_of_two;
}

// Combines the values of all threads of a block by pairwise reduction, and returns the result in
// each thread. `shared` has room for THREADS values.
template <class T, class Combine>
__device__ T reduce(T value, T *shared, Combine combine) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned width = THREADS / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + width]);
    __syncthreads();
  }
  value = shared[0];
  __syncthreads();  // The next reduction writes to the same memory.
  return value;
}

// The softmax of each of `rows` rows of `length` elements. In a row with a NaN or plus infinity,
// all results are NaN.
template <class Real>
__device__ void softmax(const typename Real::Element *__restrict__ x, typename Real::Element *__restrict__ y, size_t rows, size_t length) {
  using Element = typename Real::Element;
  __shared__ Element maxima[THREADS];
  __shared__ double sums[THREADS];
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const Element *from = x + row * length;
    Element *to = y + row * length;

    // The greatest element that is a number: NaN compares as false.
    Element max = Real::negative_infinity();
    for (size_t i = threadIdx.x; i < length; i += THREADS) max = from[i] > max ? from[i] : max;
    max = reduce(max, maxima, [](Element a, Element b) { return b > a ? b : a; });

    double sum = 0;
    for (size_t i = threadIdx.x; i < length; i += THREADS) {
      Element e = exp_scaled<Real>(from[i] - max);
      to[i] = e;
      sum += e;
    }
    Element total = (Element)reduce(sum, sums, [](double a, double b) { return a + b; });

    // Each thread reads what it wrote itself.
    for (size_t i = threadIdx.x; i < length; i += THREADS) to[i] = to[i] / total;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_f32(const float *__restrict__ x, float *__restrict__ y, size_t rows, size_t length) {
  softmax<F32>(x, y, rows, length);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_f64(const double *__restrict__ x, double *__restrict__ y, size_t rows, size_t length) {
  softmax<F64>(x, y, rows, length);
}
