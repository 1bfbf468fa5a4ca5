// Fills root tables of output tuples. One thread.
//
// Pointers that are a kernel's parameters need no memory of the host's that would have to outlive the call, and so no wait at its end;
// and a graph that is captured has them in it.
extern "C" __global__ void store_pointers(void **table, int count, void *p0, void *p1, void *p2, void *p3) {
  if (count > 0) table[0] = p0;
  if (count > 1) table[1] = p1;
  if (count > 2) table[2] = p2;
  if (count > 3) table[3] = p3;
}
