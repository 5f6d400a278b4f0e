/* SPDX-License-Identifier: Apache-2.0 */
/* Does this machine decide as the exporter did? Replays the golden cases; the exit status is 0 if all are right. */
#include <stdio.h>

#include "model.h"

#include "golden.h"
#include "replay.h"

static HC_SESSION(memory, MODEL_SESSION_BYTES);

int main(void)
{
    const hc_golden golden = {model, MODEL_N_SENSORS, golden_words, golden_readings, golden_offsets};
    const int all = (int)golden_words[0];
    int wrong;
    const int right = hc_replay(&golden, &memory.session, &wrong);
    printf("%d of %d golden cases are right\n", right, all);
    if (wrong >= 0) printf("the first that is not: case %d\n", wrong);
    return right != all;
}
