/* Mathematics that the host computes on arrays in the guest's memory.
 *
 *     #include "callbox_maths.h"
 *
 *     callbox_map(CALLBOX_EXP, x, n, y, n);
 *
 * The contract is `wit/maths/callbox-maths.wit`, with the accuracy of each function. An array that
 * breaks a rule ends the guest's call with INVALID_ARGUMENT or OUT_OF_RANGE. A module that calls a
 * function is refused where the policy withholds mathematics, and by a host that has none. */
#ifndef CALLBOX_MATHS_H
#define CALLBOX_MATHS_H

#include "callbox.h"

/* A function of one number. */
typedef enum callbox_elementwise {
  CALLBOX_EXP, CALLBOX_LOG, CALLBOX_TANH, CALLBOX_ERF, CALLBOX_SIGMOID, CALLBOX_RSQRT, CALLBOX_SIN,
  CALLBOX_COS
} callbox_elementwise;

/* A function of a row. */
typedef enum callbox_reduction {
  CALLBOX_SUM, CALLBOX_MAX, CALLBOX_ROOT_MEAN_SQUARE
} callbox_reduction;

/* A discrete Fourier transform. */
typedef enum callbox_transform {
  CALLBOX_FORWARD, CALLBOX_INVERSE, CALLBOX_REAL_FORWARD, CALLBOX_REAL_INVERSE
} callbox_transform;

/* The type of the elements of a conversion. */
typedef enum callbox_convertible {
  CALLBOX_CONVERT_F32, CALLBOX_CONVERT_F16, CALLBOX_CONVERT_BF16, CALLBOX_CONVERT_S8
} callbox_convertible;

/* An order of elements. NaNs are greater than every other element. */
typedef enum callbox_order { CALLBOX_ASCENDING, CALLBOX_DESCENDING } callbox_order;

/* The type of the elements of `a` and `b` in a product. `c` has elements of the same type if it is
 * F32 or F64, of F32 for F16 and BF16, and of S32 for S8. */
typedef enum callbox_number {
  CALLBOX_NUMBER_F32, CALLBOX_NUMBER_F64, CALLBOX_NUMBER_F16, CALLBOX_NUMBER_BF16, CALLBOX_NUMBER_S8
} callbox_number;

/* A batch of matrices: element `[l, i, j]` is the element number
 * `l * batch_stride + i * row_stride + j * column_stride` of `data`. */
typedef struct callbox_matrices {
  void *data;
  uint32_t size; /* in bytes */
  uint32_t batch_stride;
  uint32_t row_stride;
  uint32_t column_stride;
} callbox_matrices;

/* A batch of products: `c = alpha a b + beta c`. `a` has matrices of `rows x depth`, `b` of
 * `depth x columns`, and `c` of `rows x columns`, no two elements of which have the same place. If
 * `beta` is 0, `c` is not read. */
typedef struct callbox_product {
  callbox_matrices a;
  callbox_matrices b;
  callbox_matrices c;
  uint32_t batch;
  uint32_t rows;
  uint32_t columns;
  uint32_t depth;
  uint8_t number; /* callbox_number */
  double alpha;
  double beta;
} callbox_product;

CALLBOX_ASSERT(sizeof(callbox_matrices) == 20);
CALLBOX_ASSERT_FIELD(callbox_matrices, data, 0);
CALLBOX_ASSERT_FIELD(callbox_matrices, batch_stride, 8);
CALLBOX_ASSERT_FIELD(callbox_matrices, row_stride, 12);
CALLBOX_ASSERT_FIELD(callbox_matrices, column_stride, 16);
CALLBOX_ASSERT(sizeof(callbox_product) == 96);
CALLBOX_ASSERT_FIELD(callbox_product, a, 0);
CALLBOX_ASSERT_FIELD(callbox_product, b, 20);
CALLBOX_ASSERT_FIELD(callbox_product, c, 40);
CALLBOX_ASSERT_FIELD(callbox_product, batch, 60);
CALLBOX_ASSERT_FIELD(callbox_product, rows, 64);
CALLBOX_ASSERT_FIELD(callbox_product, columns, 68);
CALLBOX_ASSERT_FIELD(callbox_product, depth, 72);
CALLBOX_ASSERT_FIELD(callbox_product, number, 76);
CALLBOX_ASSERT_FIELD(callbox_product, alpha, 80);
CALLBOX_ASSERT_FIELD(callbox_product, beta, 88);

#define CALLBOX_MATHS(name) \
  CALLBOX_EXTERN_C          \
  __attribute__((import_module("callbox:ffi/maths@1.0.0"), import_name(name)))

/* Writes the function of each element of `x` to `y`, which is as long and may be `x`. */
CALLBOX_MATHS("map")
void callbox_map(uint32_t function, const float *x, size_t x_count, float *y, size_t y_count);

CALLBOX_MATHS("map-f64")
void callbox_map_f64(uint32_t function, const double *x, size_t x_count, double *y,
                     size_t y_count);

/* Converts each element of `x`, and writes it to `y`, which has as many. Sizes are in bytes. */
CALLBOX_MATHS("convert")
void callbox_convert(uint32_t source, const void *x, size_t x_size, uint32_t target, void *y,
                     size_t y_size);

/* Writes the softmax of each row of `columns` elements of `x` to `y`, which is as long and may be
 * `x`. */
CALLBOX_MATHS("softmax-rows")
void callbox_softmax_rows(const float *x, size_t x_count, size_t columns, float *y,
                          size_t y_count);

/* Writes the function of each row of `x` to `y`, which has one element for each row. */
CALLBOX_MATHS("reduce-rows")
void callbox_reduce_rows(uint32_t function, const float *x, size_t x_count, float *y,
                         size_t y_count);

/* Writes the dot product of each row of `a` with the row of `b` to `y`, which has one element for
 * each row. */
CALLBOX_MATHS("dot-rows")
void callbox_dot_rows(const float *a, size_t a_count, const float *b, size_t b_count, float *y,
                      size_t y_count);

/* The same for doubles. */
CALLBOX_MATHS("softmax-rows-f64")
void callbox_softmax_rows_f64(const double *x, size_t x_count, size_t columns, double *y,
                              size_t y_count);

CALLBOX_MATHS("reduce-rows-f64")
void callbox_reduce_rows_f64(uint32_t function, const double *x, size_t x_count, double *y,
                             size_t y_count);

CALLBOX_MATHS("dot-rows-f64")
void callbox_dot_rows_f64(const double *a, size_t a_count, const double *b, size_t b_count,
                          double *y, size_t y_count);

/* Divides each row of `x` by `sqrt(mean(x^2) + eps)`, multiplies it by `weight`, and writes it to
 * `y`, which is as long as `x`. A row is as long as `weight`. */
CALLBOX_MATHS("rms-norm-rows")
void callbox_rms_norm_rows(const float *x, size_t x_count, const float *weight,
                           size_t weight_count, float *y, size_t y_count, float eps);

/* The gradient of `callbox_rms_norm_rows`: writes the cotangent of `x` to `dx`, and adds the
 * cotangent of `weight` to `dweight`. */
CALLBOX_MATHS("rms-norm-rows-gradient")
void callbox_rms_norm_rows_gradient(const float *x, size_t x_count, const float *weight,
                                    size_t weight_count, const float *dy, size_t dy_count,
                                    float *dx, size_t dx_count, double *dweight,
                                    size_t dweight_count, float eps);

/* Writes the positions of the first elements of each row of `columns` elements of `x`, in this
 * order, to a row of `positions`. Its rows are equally long, and have at most `columns` elements.
 * Equal elements are in the order of their positions. */
CALLBOX_MATHS("argsort-rows")
void callbox_argsort_rows(uint32_t order, const float *x, size_t x_count, size_t columns,
                          int32_t *positions, size_t positions_count);

CALLBOX_MATHS("argsort-rows-f64")
void callbox_argsort_rows_f64(uint32_t order, const double *x, size_t x_count, size_t columns,
                              int32_t *positions, size_t positions_count);

/* Writes the Fourier transform of each row of `x` to a row of `y`, of at most 65536 `points`. A
 * complex number is its real part and its imaginary part. A row of real numbers has `points` of
 * them, and its transform has `points / 2 + 1` complex ones. */
CALLBOX_MATHS("fft-rows")
void callbox_fft_rows(uint32_t transform, const float *x, size_t x_count, size_t points, float *y,
                      size_t y_count);

CALLBOX_MATHS("fft-rows-f64")
void callbox_fft_rows_f64(uint32_t transform, const double *x, size_t x_count, size_t points,
                          double *y, size_t y_count);

/* Multiplies matrices. */
CALLBOX_MATHS("gemm") void callbox_gemm(const callbox_product *product);

#endif
