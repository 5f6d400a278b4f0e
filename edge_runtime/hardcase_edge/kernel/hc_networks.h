/* SPDX-License-Identifier: Apache-2.0 */
/* Networks: layers of int8 numbers, one after the other (docs/SPEC-program-v1.md section 4.1). A session lends them memory
 * (docs/SPEC-image-v1.md section 3): windows of 16 bits, which are multiplied with the weights a few at a time, and behind
 * them the input of a layer and its output, which take turns at the two ends. */
#ifndef HARDCASE_NETWORKS_H
#define HARDCASE_NETWORKS_H

#include "hc_image.h"

#if defined(__GNUC__)
typedef int16_t __attribute__((may_alias)) window_t; /* it lies in memory of another type */
#else
typedef int16_t window_t;
#endif
#if defined(__GNUC__) && !defined(__clang__) && HC_LANES > 1
#define VECTORS __attribute__((optimize("tree-vectorize", "vect-cost-model=dynamic")))
#else
#define VECTORS
#endif

typedef const signed char *bytes_of;


enum { ABREAST = 16 }; /* channels of a depthwise layer that are summed side by side */

/* The part of a window that lies inside: places from to to along one side, the first of them at ``at`` of the input. */
typedef struct { uint32_t from, to, at; } inside;

typedef struct {
    bytes_in record;
    bytes_of in;
    uint32_t height, width, channels; /* of the input */
    int32_t zero;
    inside rows, columns; /* of the window that is looked at */
} layer_in;

static inside inside_of(uint32_t place, uint32_t stride, uint32_t padding, uint32_t window, uint32_t size)
{
    uint32_t start = place * stride;
    inside i;
    i.from = start < padding ? padding - start : 0;
    i.at = start + i.from - padding;
    i.to = size - i.at < window - i.from ? i.from + (size - i.at) : window;
    return i;
}

/* Look at the window of one place of the output. */
static void look_at(layer_in *l, uint32_t place)
{
    bytes_in r = l->record;
    uint32_t row = place / word(r, LAYER_WIDTH), column = place % word(r, LAYER_WIDTH);
    l->rows = inside_of(row, word(r, LAYER_DOWN), word(r, LAYER_ABOVE), word(r, LAYER_WINDOW_HEIGHT), l->height);
    l->columns = inside_of(column, word(r, LAYER_RIGHT), word(r, LAYER_LEFT), word(r, LAYER_WINDOW_WIDTH), l->width);
}

/* The first value inside the window in its row i. */
INLINE bytes_of row_of(const layer_in *l, uint32_t i)
{
    return l->in + ((size_t)(l->rows.at + i - l->rows.from) * l->width + l->columns.at) * l->channels;
}

/* The window that is looked at, less the zero point, with 0 outside. */
VECTORS static void take_window(const layer_in *l, window_t *window)
{
    size_t height = word(l->record, LAYER_WINDOW_HEIGHT), line = (size_t)word(l->record, LAYER_WINDOW_WIDTH) * l->channels;
    size_t first = (size_t)l->columns.from * l->channels, last = (size_t)l->columns.to * l->channels;
    int16_t zero = (int16_t)l->zero;
    for (uint32_t i = 0; i < height; i++, window += line) {
        bytes_of x = row_of(l, i);
        if (i < l->rows.from || i >= l->rows.to) {
            memset(window, 0, 2 * line);
            continue;
        }
        memset(window, 0, 2 * first);
        for (size_t k = first; k < last; k++) window[k] = (window_t)(x[k - first] - zero);
        memset(window + last, 0, 2 * (line - last));
    }
}

VECTORS static uint32_t dot(const window_t *x, bytes_of w, size_t n)
{
    uint32_t sum = 0;
    for (size_t k = 0; k < n; k++) sum += (uint32_t)(x[k] * (int16_t)w[k]);
    return sum;
}

/* The products of some windows, one behind the other, with the same weights. */
VECTORS static void dots(const window_t *x, bytes_of w, size_t n, uint32_t n_windows, uint32_t *sums)
{
    const window_t *x1 = x + n, *x2 = x1 + n, *x3 = x2 + n;
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (n_windows < NETWORK_WINDOWS) {
        for (uint32_t k = 0; k < n_windows; k++) sums[k] = dot(x + k * n, w, n);
        return;
    }
    for (size_t k = 0; k < n; k++) {
        int16_t v = w[k];
        a += (uint32_t)(x[k] * v), b += (uint32_t)(x1[k] * v), c += (uint32_t)(x2[k] * v), d += (uint32_t)(x3[k] * v);
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}

/* An output of a layer, within its clamp; where: in bytes, or among scores if this is the last layer. */
static void put_output(const layer_in *l, int64_t value, size_t k, signed char *out, unsigned char *scores)
{
    int32_t low = get_i32(l->record + 4 * LAYER_LOW), high = get_i32(l->record + 4 * LAYER_HIGH);
    value = value < low ? low : value > high ? high : value;
    if (out) out[k] = (signed char)value;
    else put_i64(scores + 8 * k, value - get_i32(l->record + 4 * LAYER_ZERO_POINT));
}

/* A sum of channel o on the scale of the output. */
static inline int64_t scaled(const layer_in *l, bytes_in image, uint32_t sum, uint32_t o)
{
    int32_t multiplier = get_i32(image + word(l->record, LAYER_MULTIPLIERS) + 4 * (size_t)o);
    unsigned shift = image[word(l->record, LAYER_SHIFTS) + (size_t)o];
    sum += get_u32(image + word(l->record, LAYER_BIAS) + 4 * (size_t)o);
    return shift_down((int64_t)(int32_t)sum * multiplier + ((int64_t)1 << (shift - 1)), shift) +
           get_i32(l->record + 4 * LAYER_ZERO_POINT);
}

static void convolve(layer_in *l, bytes_in image, window_t *windows, signed char *out, unsigned char *scores)
{
    uint32_t channels = word(l->record, LAYER_CHANNELS);
    uint32_t places = word(l->record, LAYER_HEIGHT) * word(l->record, LAYER_WIDTH), sums[NETWORK_WINDOWS];
    size_t size = (size_t)word(l->record, LAYER_WINDOW_HEIGHT) * word(l->record, LAYER_WINDOW_WIDTH) * l->channels;
    for (uint32_t at = 0; at < places; at += NETWORK_WINDOWS) {
        bytes_of weights = (bytes_of)image + word(l->record, LAYER_WEIGHTS);
        uint32_t n = places - at < NETWORK_WINDOWS ? places - at : NETWORK_WINDOWS;
        for (uint32_t k = 0; k < n; k++) {
            look_at(l, at + k);
            take_window(l, windows + k * size);
        }
        for (uint32_t o = 0; o < channels; o++, weights += size) {
            dots(windows, weights, size, n, sums);
            for (uint32_t k = 0; k < n; k++)
                put_output(l, scaled(l, image, sums[k], o), (size_t)(at + k) * channels + o, out, scores);
        }
    }
}

/* Sums of n channels from channel ``first`` on, each over its own values of a window. */
VECTORS static void sum_channels(const layer_in *l, bytes_of weights, uint32_t first, uint32_t n, uint32_t *sums)
{
    int16_t zero = (int16_t)l->zero;
    memset(sums, 0, ABREAST * sizeof *sums);
    for (uint32_t i = l->rows.from; i < l->rows.to; i++) {
        bytes_of x = row_of(l, i) + first;
        bytes_of w = weights + ((size_t)i * word(l->record, LAYER_WINDOW_WIDTH) + l->columns.from) * l->channels + first;
        for (uint32_t j = l->columns.from; j < l->columns.to; j++, x += l->channels, w += l->channels) {
            if (n == ABREAST)
                for (uint32_t k = 0; k < ABREAST; k++) sums[k] += (uint32_t)((int16_t)(x[k] - zero) * (int16_t)w[k]);
            else
                for (uint32_t k = 0; k < n; k++) sums[k] += (uint32_t)((x[k] - zero) * w[k]);
        }
    }
}

/* The mean or the largest value of channel o in the window. */
static int32_t pooled(const layer_in *l, uint32_t o)
{
    uint32_t height = l->rows.to - l->rows.from, width = l->columns.to - l->columns.from;
    int32_t largest = -128, sum = 0, n = (int32_t)(height * width);
    for (uint32_t i = l->rows.from; i < l->rows.to; i++) {
        bytes_of x = row_of(l, i) + o;
        for (uint32_t j = 0; j < width; j++, x += l->channels) {
            largest = *x > largest ? *x : largest;
            sum += *x;
        }
    }
    if (word(l->record, LAYER_KIND) == LARGEST) return largest;
    return sum > 0 ? (sum + n / 2) / n : -((n / 2 - sum) / n); /* halves away from zero */
}

/* Layers that take each channel by itself: depthwise convolutions and pools. */
static void by_channel(layer_in *l, bytes_in image, signed char *out, unsigned char *scores)
{
    uint32_t places = word(l->record, LAYER_HEIGHT) * word(l->record, LAYER_WIDTH), sums[ABREAST];
    int is_pool = word(l->record, LAYER_KIND) != DEPTHWISE;
    bytes_of weights = (bytes_of)image + word(l->record, LAYER_WEIGHTS);
    size_t at = 0;
    for (uint32_t place = 0; place < places; place++) {
        look_at(l, place);
        for (uint32_t first = 0; first < l->channels; first += ABREAST) {
            uint32_t n = l->channels - first < ABREAST ? l->channels - first : ABREAST;
            if (!is_pool) sum_channels(l, weights, first, n, sums);
            for (uint32_t k = 0; k < n; k++, at++)
                put_output(l, is_pool ? pooled(l, first + k) : scaled(l, image, sums[k], first + k), at, out, scores);
        }
    }
}

static void network_scores(hc_session *s, bytes_in scorer, unsigned char *scores)
{
    bytes_in image = image_of(s), cells = image + word(scorer, NETWORK_CELLS);
    bytes_in substitutes = image + word(scorer, NETWORK_SUBSTITUTES);
    bytes_in codes = part(s, S_WIDE);
    unsigned char *lent = (unsigned char *)s + word(scorer, NETWORK_LENT);
    signed char *one = (signed char *)lent + word(scorer, NETWORK_WINDOW_BYTES), *in = one;
    signed char *end = one + word(scorer, NETWORK_BYTES);
    uint32_t n_columns = word(scorer, NETWORK_COLUMNS), n_layers = word(scorer, NETWORK_LAYERS);
    layer_in l;
    l.record = scorer + 4 * NETWORK_WORDS;
    l.height = word(scorer, NETWORK_HEIGHT), l.width = word(scorer, NETWORK_WIDTH);
    l.channels = word(scorer, NETWORK_CHANNELS), l.zero = get_i32(scorer + 4 * NETWORK_ZERO_POINT);
    for (uint32_t k = 0; k < n_columns; k++) {
        int32_t x = get_i16(codes + 2 * (size_t)get_u16(cells + 2 * (size_t)k));
        in[k] = (signed char)(x == MISSING ? get_i16(substitutes + 2 * (size_t)k) : x);
    }
    for (uint32_t k = 0; k < n_layers; k++, l.record += 4 * LAYER_WORDS) {
        uint32_t height = word(l.record, LAYER_HEIGHT), width = word(l.record, LAYER_WIDTH);
        uint32_t channels = word(l.record, LAYER_CHANNELS);
        signed char *out = k == n_layers - 1 ? NULL : in == one ? end - (size_t)height * width * channels : one;
        l.in = in;
        if (word(l.record, LAYER_KIND) == CONV) convolve(&l, image, (window_t *)(void *)lent, out, scores);
        else by_channel(&l, image, out, scores);
        l.height = height, l.width = width, l.channels = channels;
        l.zero = get_i32(l.record + 4 * LAYER_ZERO_POINT);
        in = out;
    }
}

#endif
