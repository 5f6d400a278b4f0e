/* SPDX-License-Identifier: Apache-2.0 */
/* What the exported sketches take of Arduino's core. */
#ifndef STUB_ARDUINO_H
#define STUB_ARDUINO_H

#include <stdio.h>

struct Port {
    void begin(long) {}
    void print(const char *text) { printf("%s", text); }
    void print(int number) { printf("%d", number); }
    void println(const char *text) { printf("%s\n", text); }
};
static Port Serial;

static inline void delay(long) {}
void setup();
void loop();
extern "C" int main(void)
{
    setup();
    loop();
    return 0;
}

#endif
