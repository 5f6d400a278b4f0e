/* SPDX-License-Identifier: Apache-2.0 */
/* How an image and a session's memory are read, by the names of hc_layout.h; and what a session says of its sensors. */
#ifndef HARDCASE_IMAGE_H
#define HARDCASE_IMAGE_H

#include "hardcase.h"
#include "hardcase_config.h"
#include "hc_layout.h"
#include "hc_portable.h"

/* Is a part of the kernel compiled? */
#define HAS(part) ((HC_PARTS & (part)) != 0)

enum flags { BOUGHT = 1, FAILED = 2, WANTED = 4, LACKED = 8, UNPAID = 16, ANYTHING = 32 };
enum phase { RUNNING, NEW, WAIT_SENSORS, WAIT_REPLY, DECIDED };
enum { SMALL_MISSING = 255, MISSING = -32768, CODE_MAX = 32767 };

typedef char struct_bytes_are_right[sizeof(hc_session) == STRUCT_BYTES ? 1 : -1];

static inline bytes_in image_of(const hc_session *s) { return (bytes_in)ALIGNED(s->image.bytes, 8); }
static inline uint32_t word(bytes_in record, unsigned k) { return get_u32(record + 4 * k); }
static inline bytes_in at(bytes_in image, unsigned field) { return image + word(image, field); }
static inline unsigned char *part(hc_session *s, unsigned field)
{
    return (unsigned char *)s + word(image_of(s), field);
}
static inline const unsigned char *part_of(const hc_session *s, unsigned field)
{
    return (const unsigned char *)s + word(image_of(s), field);
}
static inline bytes_in sensor_record(bytes_in image, uint32_t k)
{
    return at(image, H_AT_SENSORS) + 4u * SENSOR_WORDS * k;
}
static inline bytes_in node_record(bytes_in image, uint32_t k)
{
    return image + get_u32(at(image, H_AT_NODES) + 4u * k);
}
static inline bytes_in scorer_record(bytes_in image, uint32_t k)
{
    return image + get_u32(at(image, H_AT_SCORERS) + 4u * k);
}

/* A scorer's outputs, 8 bytes each. */
static int64_t score(const unsigned char *scores, uint32_t k) { return get_i64(scores + 8 * (size_t)k); }

static inline void add_score(unsigned char *scores, size_t k, int64_t value)
{
    put_i64(scores + 8 * k, add64(get_i64(scores + 8 * k), value));
}

#endif
