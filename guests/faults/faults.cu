// The faults that a GPU has, too, as CUDA kernels. callbox.json says how they are launched.
//
// A GPU has no sandbox: every fault except the endless loop destroys the context, and with it all
// that the process has on the device.

extern "C" __global__ void healthy(const float *__restrict__ x, float *__restrict__ y, size_t elements) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += stride) y[i] = x[i];
}

// An address outside all allocations: the lowest page is never mapped.
#define NOWHERE ((volatile float *)16)

extern "C" __global__ void unreachable(float *) { asm volatile("trap;"); }

extern "C" __global__ void read_out_of_bounds(float *y) { y[0] = *NOWHERE; }

extern "C" __global__ void write_out_of_bounds(float *) { *NOWHERE = 1; }

// A volatile value is read in each iteration, so that the compiler keeps the loop.
extern "C" __global__ void infinite_loop(float *y) {
  for (volatile float *watched = y;;) (void)*watched;
}
