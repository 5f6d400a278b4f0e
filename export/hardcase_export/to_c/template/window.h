/* SPDX-License-Identifier: Apache-2.0 */
/* A window of samples becomes the four features that training saw, bit for bit: mean, deviation, slope, roughness.
 *
 * sample    gives sample k of samples, 0 the oldest, as a double: from floats, a converter's integers, a ring
 * n         how many, at least 2: as many as in training
 * features  written; to be stored into the fields of model.h, which may be floats */
#ifndef WINDOW_H
#define WINDOW_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef double (*window_sample)(const void *samples, size_t k);

/* Rounded before it is added to anything: a fused multiply-add would have other bits. */
static inline double window_product(double a, double b)
{
    volatile double product = a * b;
    return product;
}

static inline void window_features(window_sample sample, const void *samples, size_t n, double features[4])
{
    const double count = (double)n, middle = (double)(n - 1) / 2;
    double total = 0, squares = 0, slope = 0, rough = 0, last = sample(samples, 0), mean;
    for (size_t k = 0; k < n; k++) total += sample(samples, k);
    mean = total / count;
    for (size_t k = 0; k < n; k++) {
        const double x = sample(samples, k), d = x - mean;
        squares += window_product(d, d);
        slope += window_product((double)k - middle, d);
        rough += fabs(x - last);
        last = x;
    }
    features[0] = mean;
    features[1] = sqrt(squares / count);
    features[2] = window_product(slope, 12) / (double)((uint64_t)n * ((uint64_t)n * n - 1));
    features[3] = rough / (double)(n - 1);
}

#endif
