// Fills root tables of output tuples. One thread.
//
// The pointers are parameters of a kernel rather than copied from the host's memory, which would
// have to outlive the call. The call therefore need not wait, and a captured graph contains the
// pointers.
extern "C" __global__ void store_pointers(void **table, int count, void *p0, void *p1, void *p2, void *p3) {
  if (count > 0) table[0] = p0;
  if (count > 1) table[1] = p1;
  if (count > 2) table[2] = p2;
  if (count > 3) table[3] = p3;
}
