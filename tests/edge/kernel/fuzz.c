/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer over (image, readings): no image that hc_check accepts can make the kernel do harm, whatever it is fed, in
 * whatever order it is called, and wherever its session is moved.
 *
 * The input: 8 bytes of choices, then the image, then readings, taken again from their start when they end. The mutator
 * knows where an image has its words, so that most of what it makes passes the first checks. */
#include <stdio.h>

#include "drive.h"
#include "hc_layout.h"

enum { MOST_BYTES = 1 << 20, CHOICES = 8, HEADER = 4 * S_WORDS, MOST_TURNS = 100000 };
enum { WRONG_CALLS = 16, MOVES = 32 }; /* of the first choice, above those that run() names */

int LLVMFuzzerInitialize(int *count, char ***values);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t most);

/* ------------------------------------------------------------------ one input */

/* Calls that do not fit the phase: they are refused, or they are what an owner may do at any time. */
static void call_out_of_order(hc_session *s, const uint8_t *choices, int turn)
{
    uint64_t readings[4] = {0, 0, 0, 0};
    switch ((choices[turn % CHOICES] + turn) % 8) {
    case 0: hc_dead(s, choices[4]); break;
    case 1: hc_reply(s, choices[5] - 100, 40 * choices[6]); break;
    case 2: hc_feed(s, choices[4] - 10, hc_readings_bytes(s->image.bytes, choices[4] - 10) > 32 ? NULL : readings); break;
    case 3: hc_visited(s, choices[3] - 5); break;
    case 4: hc_was_bought(s, choices[4] - 5); break;
    case 5: hc_has_failed(s, choices[4] - 5), hc_was_unpaid(s, choices[4] - 5); break;
    case 6: hc_resend(s); break;
    default: hc_wanted(s);
    }
}

static hc_session *moved(hc_session *s, size_t n)
{
    hc_session *elsewhere = copy_of(s, n);
    free(s);
    return elsewhere;
}

/* Returns the session, decided or refused at its start. */
static hc_session *run(hc_session *s, const void *image, const uint8_t *choices, const uint8_t *readings, size_t n_readings)
{
    size_t at = 0, n = hc_session_bytes(image);
    int64_t budget = choices[0] & 1 ? HC_NO_BUDGET : (int64_t)choices[1] << (choices[2] % 56);
    if (hc_start(s, image, budget, 1 + choices[3] % 4, choices[0] & 2) < 0) return s;
    if (choices[0] & 4) hc_dead(s, choices[4]);
    for (int turn = 0; turn < MOST_TURNS; turn++) {
        int action = hc_next(s);
        if (choices[0] & MOVES && turn < 100) s = moved(s, n);
        if (choices[0] & WRONG_CALLS && turn < 100) call_out_of_order(s, choices, turn), action = hc_next(s);
        if (action == HC_DECIDED) {
            NEED(s->confidence <= 10000 && s->steps >= 1 && hc_visited(s, 0) == 0);
            return s;
        }
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
    return s;
}

static unsigned long n_accepted;
static void say_accepted(void) { fprintf(stderr, "stat::accepted_images: %lu\n", n_accepted); }

int LLVMFuzzerInitialize(int *count, char ***values)
{
    (void)count, (void)values;
    return atexit(say_accepted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint32_t size;
    void *image;
    if (n < CHOICES + HEADER) return -1;
    memcpy(&size, data + CHOICES + 4 * H_IMAGE_BYTES, 4);
    if (size > n - CHOICES) return -1;
    image = copy_of(data + CHOICES, size);
    if (hc_check(image, size) && hc_session_bytes(image) <= MOST_BYTES) {
        hc_session *memory = malloc(hc_session_bytes(image));
        NEED(memory != NULL);
        n_accepted++;
        free(run(memory, image, data, data + CHOICES + size, n - CHOICES - size));
    }
    free(image);
    return 0;
}

/* ------------------------------------------------------------------ the mutator */

static uint32_t state;
static uint32_t below(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return n ? (state >> 8) % n : 0;
}

static uint32_t get(const uint8_t *image, size_t at)
{
    uint32_t v;
    memcpy(&v, image + at, 4);
    return v;
}

/* Where a word of a sensor, scorer or node, or of the header, lies in an image of so many words. */
static size_t some_word(const uint8_t *image, uint32_t n_bytes)
{
    uint32_t at = 0, kind = below(6);
    if (kind == 0) return 4 * (size_t)below(HEADER / 4);
    if (kind == 1) at = get(image, 4 * H_AT_SENSORS) + 4 * below(SENSOR_WORDS * get(image, 4 * H_SENSORS));
    if (kind == 2) at = get(image, 4 * H_AT_COLUMNS) + 4 * below(COLUMN_BYTES / 4 * get(image, 4 * H_COLUMNS));
    if (kind == 3 || kind == 4) {
        uint32_t table = get(image, 4 * (kind == 3 ? H_AT_SCORERS : H_AT_NODES));
        table += 4 * below(get(image, 4 * (kind == 3 ? H_SCORERS : H_NODES)));
        if (table % 4 == 0 && table <= n_bytes - 4) at = below(8) ? get(image, table) + 4 * below(16) : table;
    }
    if (kind == 5) at = 4 * below(n_bytes / 4);
    return at % 4 == 0 && at <= n_bytes - 4 ? at : 4 * (size_t)below(n_bytes / 4);
}

static uint32_t other_word(const uint8_t *image, uint32_t n_bytes, uint32_t old)
{
    static const uint32_t LIMITS[] = {0, 1, 2, 8, 62, 255, 256, 8192, 16384, 32767, 65535, 65536, 0x7FFFFFFF, 0x80000000, ~0u};
    switch (below(7)) {
    case 0: return old + 1;
    case 1: return old - 1;
    case 2: return LIMITS[below(sizeof LIMITS / sizeof *LIMITS)];
    case 3: return old ^ 1u << below(32);
    case 4: return get(image, some_word(image, n_bytes));
    case 5: return old + 4 * below(64) - 128;
    default: return 4 * below(n_bytes / 4); /* an offset */
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    uint8_t *image = data + CHOICES;
    uint32_t n_bytes;
    state = seed;
    if (n < CHOICES + HEADER || below(16) == 0) return LLVMFuzzerMutate(data, n, most);
    n_bytes = get(image, 4 * H_IMAGE_BYTES);
    if (n_bytes < HEADER || n_bytes > n - CHOICES || n_bytes % 4) return LLVMFuzzerMutate(data, n, most);
    if (below(3) == 0) data[below(CHOICES)] = (uint8_t)below(256);
    if (below(3) == 0) { /* mostly a threshold, a leaf or a weight: the image stays sound */
        image[HEADER + below(n_bytes - HEADER)] = (uint8_t)below(256);
        return n;
    }
    if (below(6) == 0 && n - CHOICES > n_bytes) { /* readings */
        size_t room = n - CHOICES - n_bytes;
        return CHOICES + n_bytes + LLVMFuzzerMutate(image + n_bytes, room, most - CHOICES - n_bytes);
    }
    for (uint32_t k = 1 + below(2) * below(2); k > 0; k--) {
        size_t at = some_word(image, n_bytes);
        uint32_t v = other_word(image, n_bytes, get(image, at));
        if (at != 4 * H_MAGIC && at != 4 * H_IMAGE_BYTES) memcpy(image + at, &v, 4); /* magic and length stay */
    }
    return n;
}
