/* SPDX-License-Identifier: Apache-2.0 */
/* Does this board decide as the exporter did? Replays the golden cases, again and again. */
#include <hardcase_policy.h>

#include <golden.h>
#include <replay.h>

static HC_SESSION(memory, MODEL_SESSION_BYTES);

void setup()
{
    Serial.begin(115200);
}

void loop()
{
    const hc_golden golden = {model, MODEL_N_SENSORS, golden_words, golden_readings, golden_offsets};
    int wrong;
    Serial.print(hc_replay(&golden, &memory.session, &wrong));
    Serial.print(" of ");
    Serial.print((int)golden_words[0]);
    Serial.println(" golden cases are right");
    delay(10000);
}
