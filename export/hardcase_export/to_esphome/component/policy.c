/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h, behind the tables of one policy. */
#include "policy.h"

static HC_SESSION(memory, MODEL_SESSION_BYTES);

const void *hardcase_image(void) { return model; }
hc_session *hardcase_session(void) { return &memory.session; }
const char *hardcase_label(int64_t result) { return MODEL_N_CLASSES ? model_label(result) : "value"; }

double hardcase_value(int64_t result)
{
#ifdef MODEL_VALUE_STEPS
    return model_value(result);
#else
    return (double)result;
#endif
}

int hardcase_golden(int *right)
{
    const hc_golden golden = {model, MODEL_N_SENSORS, golden_words, golden_readings, golden_offsets};
    int wrong;
    *right = hc_replay(&golden, &memory.session, &wrong);
    return (int)golden_words[0];
}
