/* Tuples in the oldest convention of the platform "CUDA": `buffers` has a pointer for each
 * sub-buffer in preorder. A pointer of an input tuple's sub-buffer may be null, and is then in the
 * tuple's table in device memory. The target fills the tables of output tuples.
 *
 *     struct callbox_cuda_tuples tuples;
 *     if (!callbox_cuda_tuples_open(&tuples, "(a(aa)a)", "(aa)", stream, buffers, status)) return;
 *     ... launch kernels on tuples.leaves[0], tuples.leaves[1], ...
 *     callbox_cuda_tuples_fill(&tuples);
 *
 * Shapes are texts: `a` is an array or a token, and `(...)` is a tuple. The shapes of all operands
 * are concatenated.
 */
#ifndef CALLBOX_CUDA_TUPLES_H
#define CALLBOX_CUDA_TUPLES_H

#include "callbox_cuda.h"

enum { CALLBOX_CUDA_LEAVES = 16, CALLBOX_CUDA_TABLES = 8, CALLBOX_CUDA_ELEMENTS = 4 };

static const char callbox_cuda_tuples_ptx_[] = {
#embed "tuples.ptx"
    , 0};

static struct callbox_cuda_image callbox_cuda_tuples_image_ = CALLBOX_CUDA_IMAGE(callbox_cuda_tuples_ptx_);

struct callbox_cuda_tuples {
  CUstream stream;
  XlaCustomCallStatus *status;
  /* The next buffer. */
  void **buffers;
  /* The leaves of operands and output, in preorder. */
  void *leaves[CALLBOX_CUDA_LEAVES];
  unsigned leaf_count;
  /* The tables of output tuples, each with its future elements. */
  struct {
    void *table;
    void *elements[CALLBOX_CUDA_ELEMENTS];
    int count;
  } outputs[CALLBOX_CUDA_TABLES];
  unsigned output_count;
};

/* Reads one shape and its buffers. `table` is the tuple around it, in device memory, and `index`
 * its place there. Sets `element` to its address. Returns the shape's end, or NULL if the call has
 * failed. */
static inline const char *callbox_cuda_tuples_walk_(struct callbox_cuda_tuples *tuples, const char *shape, bool is_output, void *table,
                                                    int index, void **element) {
  void *buffer = *tuples->buffers++;
  if (buffer == NULL && !is_output && table != NULL &&
      !callbox_cuda_read(&buffer, (void **)table + index, sizeof buffer, tuples->stream, tuples->status))
    return NULL;
  *element = buffer;
  if (*shape == 'a') {
    if (tuples->leaf_count == CALLBOX_CUDA_LEAVES) {
      callbox_cuda_fail(tuples->status, "expected no more than 16 leaves");
      return NULL;
    }
    tuples->leaves[tuples->leaf_count++] = buffer;
    return shape + 1;
  }
  if (*shape != '(' || tuples->output_count == CALLBOX_CUDA_TABLES) {
    callbox_cuda_fail(tuples->status, "expected a shape such as (a(aa)a), with no more than 8 tuples");
    return NULL;
  }
  void *elements[CALLBOX_CUDA_ELEMENTS];
  int count = 0;
  for (shape++; *shape != ')'; count++) {
    if (count == CALLBOX_CUDA_ELEMENTS) {
      callbox_cuda_fail(tuples->status, "expected no more than 4 elements in a tuple");
      return NULL;
    }
    shape = callbox_cuda_tuples_walk_(tuples, shape, is_output, buffer, count, &elements[count]);
    if (shape == NULL) return NULL;
  }
  if (is_output && count > 0) {
    tuples->outputs[tuples->output_count].table = buffer;
    for (int i = 0; i < count; i++) tuples->outputs[tuples->output_count].elements[i] = elements[i];
    tuples->outputs[tuples->output_count++].count = count;
  }
  return shape + 1;
}

/* Finds all leaves. Waits for the stream once for each null pointer, which is not possible while
 * the stream is captured. Returns whether it succeeded; if not, the call has failed. */
static inline bool callbox_cuda_tuples_open(struct callbox_cuda_tuples *tuples, const char *operands, const char *output, CUstream stream,
                                            void **buffers, XlaCustomCallStatus *status) {
  void *root;
  tuples->stream = stream;
  tuples->status = status;
  tuples->buffers = buffers;
  tuples->leaf_count = tuples->output_count = 0;
  while (operands != NULL && *operands != 0) operands = callbox_cuda_tuples_walk_(tuples, operands, false, NULL, 0, &root);
  return operands != NULL && callbox_cuda_tuples_walk_(tuples, output, true, NULL, 0, &root) != NULL;
}

/* Fills the tables of all output tuples on the stream, without waiting. */
static inline bool callbox_cuda_tuples_fill(struct callbox_cuda_tuples *tuples) {
  for (unsigned i = 0; i < tuples->output_count; i++) {
    void **e = tuples->outputs[i].elements;
    void *parameters[] = {&tuples->outputs[i].table, &tuples->outputs[i].count, &e[0], &e[1], &e[2], &e[3]};
    if (!callbox_cuda_launch(&callbox_cuda_tuples_image_, "store_pointers", 1, 1, tuples->stream, parameters, tuples->status)) return false;
  }
  return true;
}

#endif
