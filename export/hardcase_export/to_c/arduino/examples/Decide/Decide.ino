/* SPDX-License-Identifier: Apache-2.0 */
/* A decision a minute: the policy says which sensor it wants next, until it can decide. Read yours in sensors.h. */
#include <hardcase_policy.h>

#include "sensors.h"

static HC_SESSION(memory, MODEL_SESSION_BYTES);

void setup()
{
    Serial.begin(115200);
}

void loop()
{
    hc_session *s = &memory.session;
    model_readings r;
    hc_start(s, model, HC_NO_BUDGET, 1, HC_NO_CLOUD);
    while (hc_next(s) == HC_NEED_SENSORS)
        for (int k; (k = hc_wanted(s)) >= 0;)
            hc_feed(s, k, read_sensor(k, &r) ? &r : NULL);
    Serial.print(model_label(s->result));
    Serial.print(", ");
    Serial.print(s->confidence);
    Serial.println(" of 10000 sure");
    delay(60000);
}
