/* SPDX-License-Identifier: Apache-2.0 */
/* Replay cases that tests/helpers/edge/kernel_cases.py wrote, and compare: built with sanitizers by tests/edge/kernel/test_kernel.py.
 *
 * The file is 64-bit words: per program its image (length, words) and number of cases; per case budget, item size,
 * cloud, has reply, result, confidence, number of dead sensors and they; then what to expect: result, confidence,
 * route, cost, steps and nodes; then per sensor: is it bought, was it wanted in vain, has it readings, their length in bytes, their words. */
#include <stdio.h>

#include "drive.h"

static int64_t *words;
static size_t at, n_words;

static int64_t take(void)
{
    NEED(at < n_words);
    return words[at++];
}

static const int64_t *run(size_t n)
{
    at += n;
    NEED(at <= n_words);
    return words + at - n;
}

typedef struct {
    int64_t is_bought, has_failed, was_unpaid, has_readings, n_bytes;
    const int64_t *readings;
} sensor;

static void feed(hc_session *s, const sensor *sensors)
{
    for (int k; (k = hc_wanted(s)) >= 0;) {
        void *readings = copy_of(sensors[k].readings, (size_t)sensors[k].n_bytes);
        NEED(hc_feed(s, k, sensors[k].has_readings ? readings : NULL) == 0);
        NEED(hc_feed(s, k, NULL) == HC_ERROR_ORDER);
        free(readings);
    }
}

static void replay(const void *image, size_t n_sensors)
{
    hc_session *s = malloc(hc_session_bytes(image));
    sensor *sensors = calloc(n_sensors + 1, sizeof *sensors);
    const int64_t *head = run(6), *expected, *nodes;
    int64_t n_dead = take();
    int action;
    NEED(s != NULL && sensors != NULL);
    memset(s, 0xA5, hc_session_bytes(image)); /* whatever its memory held is gone */
    NEED(hc_start(s, image, head[0], (int32_t)head[1], (int)head[2]) == 0);
    while (n_dead-- > 0) NEED(hc_dead(s, (int)take()) == 0);
    expected = run(5);
    nodes = run((size_t)expected[4]);
    for (size_t k = 0; k < n_sensors; k++) {
        sensors[k].is_bought = take();
        sensors[k].has_failed = take();
        sensors[k].was_unpaid = take();
        sensors[k].has_readings = take();
        sensors[k].n_bytes = take();
        sensors[k].readings = run((size_t)(sensors[k].n_bytes + 7) / 8);
    }
    while ((action = hc_next(s)) != HC_DECIDED) {
        NEED(hc_next(s) == action);
        if (action == HC_NEED_SENSORS) feed(s, sensors);
        else if (!head[3]) NEED(hc_no_reply(s) == 0);
        else NEED(hc_reply(s, head[4], (int)head[5]) == 0);
    }
    NEED(s->result == expected[0] && s->confidence == expected[1] && s->route == expected[2]);
    NEED(s->spent - s->saved == expected[3] && s->steps == expected[4]);
    for (int k = 0; k < s->steps; k++) NEED(hc_visited(s, k) == nodes[k]);
    for (size_t k = 0; k < n_sensors; k++) {
        NEED(hc_was_bought(s, (int)k) == sensors[k].is_bought);
        NEED(hc_has_failed(s, (int)k) == sensors[k].has_failed);
        NEED(hc_was_unpaid(s, (int)k) == sensors[k].was_unpaid);
    }
    free(sensors);
    free(s);
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    long n_bytes, cases = 0;
    NEED(file != NULL && fseek(file, 0, SEEK_END) == 0);
    n_bytes = ftell(file);
    rewind(file);
    words = malloc((size_t)n_bytes);
    n_words = (size_t)n_bytes / 8;
    NEED(words != NULL && fread(words, 8, n_words, file) == n_words);
    fclose(file);
    while (at < n_words) {
        size_t size = (size_t)take(), n_sensors = (size_t)take();
        void *image = copy_of(run(size / 8), size);
        NEED(hc_check(image, size) && hc_image_bytes(image) == size);
        for (int64_t n = take(); n > 0; n--, cases++) replay(image, n_sensors);
        free(image);
    }
    printf("%ld\n", cases);
    free(words);
    return 0;
}
