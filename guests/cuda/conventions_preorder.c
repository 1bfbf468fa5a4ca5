// The targets of conventions.c, with a pointer in `buffers` for each sub-buffer in preorder.
#define CALLBOX_CUDA_PREORDER 1
#include "conventions.c"
