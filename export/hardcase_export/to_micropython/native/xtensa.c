/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel for MicroPython on Xtensa with windowed calls: what its compiler asks of a library, which Debian has for
 * another calling convention only. */
#include <stddef.h>
#include <stdint.h>

typedef union {
    uint64_t whole;
    struct {
        uint32_t low, high;
    } half;
} u64;

void *memcpy(void *to, const void *from, size_t n)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    while (n-- > 0) *t++ = *f++;
    return to;
}

void *memset(void *to, int value, size_t n)
{
    unsigned char *t = to;
    while (n-- > 0) *t++ = (unsigned char)value;
    return to;
}

uint64_t __ashldi3(uint64_t a, int n)
{
    u64 x = {a}, y;
    if (n == 0) return a;
    y.half.low = n < 32 ? x.half.low << n : 0;
    y.half.high = n < 32 ? x.half.high << n | x.half.low >> (32 - n) : x.half.low << (n - 32);
    return y.whole;
}

uint64_t __muldi3(uint64_t a, uint64_t b)
{
    u64 x = {a}, y = {b}, z;
    uint32_t low = x.half.low & 0xFFFF, high = x.half.low >> 16, l = y.half.low & 0xFFFF, h = y.half.low >> 16;
    uint32_t middle = high * l + (low * l >> 16), other = low * h + (middle & 0xFFFF);
    z.half.low = other << 16 | (low * l & 0xFFFF);
    z.half.high = high * h + (middle >> 16) + (other >> 16) + x.half.low * y.half.high + x.half.high * y.half.low;
    return z.whole;
}

uint32_t __udivsi3(uint32_t, uint32_t);

uint32_t __umodsi3(uint32_t a, uint32_t b) { return a - b * __udivsi3(a, b); }

uint32_t __udivsi3(uint32_t a, uint32_t b)
{
    uint32_t rest = 0, whole = 0;
    for (int k = 31; k >= 0; k--) {
        uint32_t carry = rest >> 31;
        rest = rest << 1 | (a >> k & 1);
        if (carry || rest >= b) rest -= b, whole |= (uint32_t)1 << k;
    }
    return whole;
}

int32_t __divsi3(int32_t a, int32_t b)
{
    uint32_t x = a < 0 ? 0u - (uint32_t)a : (uint32_t)a, y = b < 0 ? 0u - (uint32_t)b : (uint32_t)b, z = __udivsi3(x, y);
    return (int32_t)((a < 0) != (b < 0) ? 0u - z : z);
}

static uint64_t divided(u64 x, uint64_t b, uint64_t *whole)
{
    uint64_t rest = 0;
    u64 z = {0};
    for (int k = 63; k >= 0; k--) {
        uint32_t word = k < 32 ? x.half.low : x.half.high;
        int carry = (int64_t)rest < 0;
        rest = rest + rest + (word >> (k & 31) & 1);
        if (carry || rest >= b) {
            rest -= b;
            if (k < 32) z.half.low |= (uint32_t)1 << k;
            else z.half.high |= (uint32_t)1 << (k - 32);
        }
    }
    *whole = z.whole;
    return rest;
}

uint64_t __udivdi3(uint64_t a, uint64_t b)
{
    uint64_t whole;
    divided((u64){a}, b, &whole);
    return whole;
}

uint64_t __umoddi3(uint64_t a, uint64_t b)
{
    uint64_t whole;
    return divided((u64){a}, b, &whole);
}
