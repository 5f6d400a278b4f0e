/* SPDX-License-Identifier: Apache-2.0 */
/* Does this board decide as the exporter did? Replays the golden cases. */
#include <zephyr/kernel.h>

#include "model.h"

#include "golden.h"
#include "replay.h"

static HC_SESSION(memory, MODEL_SESSION_BYTES);

int main(void)
{
    const hc_golden golden = {model, MODEL_N_SENSORS, golden_words, golden_readings, golden_offsets};
    int wrong;
    printk("%d of %d golden cases are right\n", hc_replay(&golden, &memory.session, &wrong), (int)golden_words[0]);
    return 0;
}
