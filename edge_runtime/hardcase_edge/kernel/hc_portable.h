/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between compilers and processors, so that nothing else does: loads and stores of the right width (memcpy,
 * so no aliasing, no unaligned access), sums that wrap around instead of being undefined, loops written out. */
#ifndef HARDCASE_PORTABLE_H
#define HARDCASE_PORTABLE_H

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define ALIGNED(p, n) __builtin_assume_aligned((p), (n))
#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 6")
#else
#define ALIGNED(p, n) (p)
#define INLINE static inline
#define UNROLLED
#endif

/* How many trees are walked side by side: as many as there are registers for their places. */
#ifndef HC_LANES
#if UINTPTR_MAX > 0xFFFFFFFFu
#define HC_LANES 8
#else
#define HC_LANES 1
#endif
#endif

#define FOUR(DO) DO(0) DO(1) DO(2) DO(3)
#define EIGHT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

typedef const unsigned char *bytes_in;

static inline uint16_t get_u16(bytes_in p) { uint16_t v; memcpy(&v, ALIGNED(p, 2), 2); return v; }
static inline int16_t get_i16(bytes_in p) { int16_t v; memcpy(&v, ALIGNED(p, 2), 2); return v; }
static inline uint32_t get_u32(bytes_in p) { uint32_t v; memcpy(&v, ALIGNED(p, 4), 4); return v; }
static inline int32_t get_i32(bytes_in p) { int32_t v; memcpy(&v, ALIGNED(p, 4), 4); return v; }
static inline int64_t get_i64(bytes_in p) { int64_t v; memcpy(&v, ALIGNED(p, 8), 8); return v; }
static inline void put_i16(unsigned char *p, int16_t v) { memcpy(ALIGNED(p, 2), &v, 2); }
static inline void put_i32(unsigned char *p, int32_t v) { memcpy(ALIGNED(p, 4), &v, 4); }
static inline void put_i64(unsigned char *p, int64_t v) { memcpy(ALIGNED(p, 8), &v, 8); }

/* Sums and products that wrap around instead of being undefined. */
static inline int64_t add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t mul64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static inline int64_t shift_down(int64_t v, unsigned n) { return v >= 0 ? v >> n : ~(~v >> n); }

#endif
