// The twin of src/kernel.rs on the GPU. callbox.json says how it is launched.

// Where a thread is in a sequence that is taken a grid of threads at a time, and where that is in one of `period` elements that
// repeats. The remainder is taken once: that of a 64-bit number in each turn would cost more than the sum.
struct Place {
  size_t i, stride, at, step, period;

  __device__ explicit Place(size_t period)
      : i((size_t)blockIdx.x * blockDim.x + threadIdx.x), stride((size_t)gridDim.x * blockDim.x), at(i % period), step(stride % period),
        period(period) {}

  __device__ void next() {
    i += stride;
    at += step;
    if (at >= period) at -= period;
  }
};

// Writes b[i % period] + c[i] to each a[i]. The period must not be 0.
extern "C" __global__ void broadcast_add(const float *__restrict__ b, const float *__restrict__ c, float *__restrict__ a, size_t period,
                                         size_t elements) {
  for (Place place(period); place.i < elements; place.next()) a[place.i] = b[place.at] + c[place.i];
}

// The same four elements at a time. Both numbers are of such groups of four, and the addresses are multiples of 16.
extern "C" __global__ void broadcast_add_by_four(const float4 *__restrict__ b, const float4 *__restrict__ c, float4 *__restrict__ a,
                                                 size_t period, size_t groups) {
  for (Place place(period); place.i < groups; place.next()) {
    float4 x = b[place.at], y = c[place.i];
    a[place.i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
  }
}
