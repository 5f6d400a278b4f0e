/* SPDX-License-Identifier: Apache-2.0 */
/* Drives the component on the host by lines of stdin, and says on stdout what it does; esphome.yaml calls it. */
#pragma once

#include <poll.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <sstream>

#include "esphome.h"

using esphome::hardcase::Hub;

/* ESPHome's clock is linked as this one (--wrap), which "skip" moves on, so that no test races with a deadline. */
inline uint64_t skipped_ms;
uint64_t real_clock() __asm__("__real__ZN7esphome9millis_64Ev");
__attribute__((used)) inline uint64_t moved_clock() __asm__("__wrap__ZN7esphome9millis_64Ev");
inline uint64_t moved_clock() { return real_clock() + skipped_ms; }

inline std::map<std::string, std::string> said; /* by the id of a source; one that is not there fails */
inline bool is_asked[2]; /* the policies, which have not said what they have decided */

inline void say_at(const char *what) { printf("@%s %llu\n", what, (unsigned long long) moved_clock()); }

inline optional<float> reading(const char *id) {
  say_at((std::string("read ") + id).c_str());
  return said.count(id) ? optional<float>(strtof(said[id].c_str(), nullptr)) : nullopt;
}

inline optional<std::string> text(const char *id) {
  printf("@read %s\n", id);
  return said.count(id) ? optional<std::string>(said[id]) : nullopt;
}

inline void show(Hub *hub, const char *what) {
  const hc_session *s = hub->decision();
  printf("@%s %d %lld %d %lld bought", what, s->route, (long long) s->result, s->confidence,
         (long long) (s->spent - s->saved));
  for (int k = 0; hc_readings_bytes(s->image.bytes, k); k++)
    if (hc_was_bought(s, k))
      printf(" %d", k);
  printf(" trace");
  for (int k = 0; k < s->steps; k++)
    printf(" %d", hc_visited(s, k));
  puts("");
}

/* Whether the next line may follow at once. */
inline bool command(Hub *const *hubs, std::istringstream line) {
  auto *mqtt = esphome::mqtt::backend;
  std::string what, a, b;
  line >> what >> a >> b;
  if (what == "up" && !mqtt->is_up) {
    mqtt->is_up = true;
    mqtt->topics.clear();
    mqtt->on_connect.call(false);
    return false;
  } else if (what == "down") {
    mqtt->is_up = mqtt->is_wanted = false;
    return false;
  } else if (what == "forget") {
    said.clear();
  } else if (what == "skip") {
    skipped_ms += std::stoull(a);
  } else if (what == "say") {
    said[a] = b;
  } else if (what == "message" && mqtt->topics.count(a)) { /* in two pieces, as a library may give them */
    std::string bytes;
    for (size_t k = 0; k < b.size(); k += 2)
      bytes.push_back((char) std::stoi(b.substr(k, 2), nullptr, 16));
    const size_t n = bytes.size(), half = n / 2;
    mqtt->on_message(a.c_str(), bytes.data(), half, 0, n);
    mqtt->on_message(a.c_str(), bytes.data() + half, n - half, half, n);
  } else if (what == "decide" || what == "other" || what == "both") {
    for (int k = what == "other"; k <= (what != "decide"); k++) {
      hubs[k]->set_budget(a == "-" ? HC_NO_BUDGET : std::stoll(a));
      hubs[k]->set_item_size(std::stoi(b));
      hubs[k]->update();
      is_asked[k] = true;
    }
    return false;
  }
  return true;
}

inline void drive(Hub *first, Hub *second) {
  static std::string line;
  Hub *const hubs[] = {first, second};
  setvbuf(stdout, nullptr, _IOLBF, 0);
  App.set_loop_interval(1);
  for (int k = 0; k < 2; k++) {
    if (is_asked[k] && !hubs[k]->is_deciding()) {
      show(hubs[k], k ? "other" : "decided");
      is_asked[k] = false;
    }
  }
  auto *mqtt = esphome::mqtt::backend;
  if (!(mqtt->is_up ? esphome::mqtt::global_mqtt_client->is_connected() : mqtt->is_wanted))
    return; /* until ESPHome's client has seen the connection, or its loss */
  struct pollfd in = {0, POLLIN, 0};
  for (char c; poll(&in, 1, 0) > 0 && read(0, &c, 1) == 1;) {
    if (c != '\n') {
      line.push_back(c);
      continue;
    }
    const bool goes_on = command(hubs, std::istringstream(line));
    line.clear();
    if (!goes_on)
      break;
  }
}
