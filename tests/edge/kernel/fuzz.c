/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer over (image, readings): no image that hc_check accepts can make the kernel do harm, whatever it is fed.
 *
 * The input: 8 bytes of choices, then the image, then readings, taken again from their start when they end. */
#include <stdio.h>

#include "drive.h"

enum { MOST_BYTES = 1 << 20, CHOICES = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int run(hc_session *s, const void *image, const uint8_t *choices, const uint8_t *readings, size_t n_readings)
{
    size_t at = 0;
    int64_t budget = choices[0] & 1 ? HC_NO_BUDGET : (int64_t)choices[1] << (choices[2] % 56);
    if (hc_start(s, image, budget, 1 + choices[3] % 4, choices[0] & 2) < 0) return 0;
    if (choices[0] & 4) hc_dead(s, choices[4]);
    for (int turn = 0; turn < 100000; turn++) {
        int action = hc_next(s);
        if (action == HC_DECIDED) return 1;
        if (action == HC_NEED_REPLY) {
            free(copy_of(hc_request(s), hc_request_bytes(s)));
            hc_resend(s);
            if (choices[0] & 8) hc_reply(s, choices[5], 100 * choices[6]);
            hc_no_reply(s);
            continue;
        }
        for (int sensor; (sensor = hc_wanted(s)) >= 0;) {
            size_t size = hc_readings_bytes(image, sensor);
            uint64_t *block = malloc(size + 8);
            NEED(block != NULL);
            for (size_t k = 0; k < size; k++) ((uint8_t *)block)[k] = n_readings ? readings[at++ % n_readings] : 0;
            NEED(hc_feed_at(s, sensor, (choices[7] >> (sensor % 8)) & 1 ? NULL : block, (int64_t)choices[1]) == 0);
            free(block);
        }
    }
    NEED(!"the session ends");
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint32_t size;
    void *image, *memory;
    if (n < CHOICES + 128) return -1;
    memcpy(&size, data + CHOICES + 4, 4);
    if (size > n - CHOICES) return -1;
    image = copy_of(data + CHOICES, size);
    if (hc_check(image, size) && hc_session_bytes(image) <= MOST_BYTES) {
        memory = malloc(hc_session_bytes(image));
        NEED(memory != NULL);
        if (run(memory, image, data, data + CHOICES + size, n - CHOICES - size)) {
            hc_session *s = memory;
            NEED(s->confidence <= 10000 && s->steps >= 1 && hc_visited(s, 0) == 0);
        }
        free(memory);
    }
    free(image);
    return 0;
}
