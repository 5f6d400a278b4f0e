/* SPDX-License-Identifier: Apache-2.0 */
/* A decision a minute: the policy says which sensor it wants next, until it can decide. */
#include <zephyr/kernel.h>

#include "model.h"
#include "sensors.h"

static HC_SESSION(memory, MODEL_SESSION_BYTES);

int main(void)
{
    hc_session *s = &memory.session;
    model_readings r;
    for (;;) {
        hc_start(s, model, HC_NO_BUDGET, 1, HC_NO_CLOUD);
        while (hc_next(s) == HC_NEED_SENSORS)
            for (int k; (k = hc_wanted(s)) >= 0;)
                hc_feed(s, k, read_sensor(k, &r) ? &r : NULL);
        printk("%s (%ld), %d of 10000 sure\n", model_label(s->result), (long)s->result, s->confidence);
        k_sleep(K_SECONDS(60));
    }
}
