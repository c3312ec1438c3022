/* Gradients of the input of a convolution with strides, phase by phase. */
#ifndef SAMERUN_STRIDED_INPUT_GRADIENT_H
#define SAMERUN_STRIDED_INPUT_GRADIENT_H

#include "convolution_shape.h"
#include "status.h"

/* The gradient of the input of a convolution with strides, or its transposed form, without the zeros that lie
 * between the values of a spread gradient. Declines without strides, and where its bits might not be those of the
 * product with zeros. */
samerun_status samerun_try_strided_input_gradient(const samerun_convolution_shape *shape, int is_double,
                                                  const void *weight, const void *gradient, const void *bias_or_null,
                                                  void *result);

#endif
