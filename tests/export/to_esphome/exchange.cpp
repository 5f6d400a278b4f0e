/* SPDX-License-Identifier: Apache-2.0 */
/* Plays lines of events to the component's exchange, and prints what it says. */
#include "exchange.h"

#include <cstdio>
#include <iostream>
#include <sstream>

static std::string bytes_of(const std::string &hex) {
  std::string out;
  for (size_t k = 0; k < hex.size(); k += 2)
    out.push_back((char) std::stoi(hex.substr(k, 2), nullptr, 16));
  return out;
}

int main() {
  esphome::hardcase::Exchange exchange;
  exchange.set_hpc(std::string(32, '\7'));
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    std::string what, hex;
    unsigned long long now, number, may;
    line >> what >> now >> number >> may >> hex;
    if (what == "ask") {
      exchange.ask(now, (const uint8_t *) bytes_of(hex).data(), number);
    } else if (what == "connected") {
      exchange.connected();
    } else if (what == "received") {
      printf("%s ", exchange.received(now, bytes_of(hex), 3));
    } else {
      const int says = exchange.poll(now, number, [may]() { return may & 1; });
      if (says == exchange.SEND) {
        printf("send %u", exchange.left_ms());
        if (may & 2)
          exchange.sent();
        for (unsigned char c : exchange.message(2, (const uint8_t *) "abcdefgh", 8))
          printf("%02x", c);
      } else if (says == exchange.OVER) {
        printf("over %d %lld %d", exchange.has_reply(), exchange.has_reply() ? (long long) exchange.result() : 0,
               exchange.has_reply() ? exchange.confidence() : 0);
      }
    }
    printf("|%d\n", exchange.can_ask(now));
  }
}
