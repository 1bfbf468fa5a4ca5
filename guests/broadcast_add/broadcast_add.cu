// The twin of src/kernel.rs on the GPU. callbox.json says how it is launched.

// A thread's index i, which advances by the threads of the grid, and `at`, which is i % period.
// Only the constructor divides: a 64-bit remainder for each element would cost more than the sum.
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

// The same for groups of four elements. `period` and `groups` count groups, and the addresses are
// multiples of 16.
extern "C" __global__ void broadcast_add_by_four(const float4 *__restrict__ b, const float4 *__restrict__ c, float4 *__restrict__ a,
                                                 size_t period, size_t groups) {
  for (Place place(period); place.i < groups; place.next()) {
    float4 x = b[place.at], y = c[place.i];
    a[place.i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
  }
}
