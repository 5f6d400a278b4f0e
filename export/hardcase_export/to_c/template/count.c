/* SPDX-License-Identifier: Apache-2.0 */
/* The instructions of a decision, as a mean over the golden cases: with -icount shift=0 the emulator takes a nanosecond
 * for each, and SysTick counts TICKS_A_SECOND. What hands over the readings is counted, what compares is not. */
#include <stdio.h>

#include "model.h"

#include "golden.h"
#include "replay.h"

#define SYSTICK ((volatile uint32_t *)0xE000E010u)

static HC_SESSION(memory, MODEL_SESSION_BYTES);

int main(void)
{
    const hc_golden golden = {model, MODEL_N_SENSORS, golden_words, golden_readings, golden_offsets};
    const unsigned char *readings = (const unsigned char *)golden_readings;
    const int64_t *at = golden_words + 1;
    uint64_t ticks = 0;
    int right = 0;
    SYSTICK[1] = 0xFFFFFF;
    SYSTICK[2] = 0;
    SYSTICK[0] = 5;
    for (int k = 0; k < (int)golden_words[0]; k++) {
        const int64_t *expected = at + 7 + at[6];
        const uint32_t began = SYSTICK[2];
        hc_replay_case(&golden, &memory.session, at, readings);
        ticks += (began - SYSTICK[2]) & 0xFFFFFF;
        right += hc_is_as(&memory.session, MODEL_N_SENSORS, expected);
        at = expected + 5 + expected[4];
        at += 1 + at[0];
        readings += golden_offsets[MODEL_N_SENSORS];
    }
    if (right != (int)golden_words[0] || !right) return 1;
    printf("%ld instructions a decision, the mean of %d golden cases\n",
           (long)(ticks * (1000000000 / TICKS_A_SECOND) / (uint64_t)right), right);
    return 0;
}
