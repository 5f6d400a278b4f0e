/* SPDX-License-Identifier: Apache-2.0 */
/* One decision. Write your sensors into sensors.h; with a radio, see HC_NEED_REPLY in hardcase.h. */
#include <stdio.h>

#include "model.h"
#include "sensors.h"

static HC_SESSION(memory, MODEL_SESSION_BYTES);

int main(void)
{
    hc_session *s = &memory.session;
    model_readings r;
    hc_start(s, model, HC_NO_BUDGET, 1, HC_NO_CLOUD);
    while (hc_next(s) == HC_NEED_SENSORS)
        for (int k; (k = hc_wanted(s)) >= 0;)
            hc_feed(s, k, read_sensor(k, &r) ? &r : NULL);
    printf("%s (%ld), %d of 10000 sure\n", model_label(s->result), (long)s->result, s->confidence);
    return 0;
}
