/* SPDX-License-Identifier: Apache-2.0 */
/* Drives the component on the host by lines of stdin, and says on stdout what it does; esphome.yaml calls it. */
#pragma once

#include <poll.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <sstream>

#include "esphome.h"

inline std::map<std::string, std::string> said; /* by the id of a source; one that is not there fails */

inline optional<float> reading(const char *id) {
  printf("@read %s\n", id);
  return said.count(id) ? optional<float>(strtof(said[id].c_str(), nullptr)) : nullopt;
}

inline optional<std::string> text(const char *id) {
  printf("@read %s\n", id);
  return said.count(id) ? optional<std::string>(said[id]) : nullopt;
}

inline void show(esphome::hardcase::Hub *hub) {
  const hc_session *s = hub->decision();
  printf("@decided %d %lld %d %lld bought", s->route, (long long) s->result, s->confidence,
         (long long) (s->spent - s->saved));
  for (int k = 0; hc_readings_bytes(s->image.bytes, k); k++)
    if (hc_was_bought(s, k))
      printf(" %d", k);
  printf(" trace");
  for (int k = 0; k < s->steps; k++)
    printf(" %d", hc_visited(s, k));
  puts("");
}

inline void command(esphome::hardcase::Hub *hub, std::istringstream line) {
  auto *mqtt = esphome::mqtt::global_mqtt_client;
  std::string what, a, b;
  line >> what >> a >> b;
  if (what == "up" && !mqtt->is_up) {
    mqtt->is_up = true;
    mqtt->on_connect(false);
  } else if (what == "down") {
    mqtt->is_up = false;
  } else if (what == "forget") {
    said.clear();
  } else if (what == "say") {
    said[a] = b;
  } else if (what == "message") {
    std::string bytes;
    for (size_t k = 0; k < a.size(); k += 2)
      bytes.push_back((char) std::stoi(a.substr(k, 2), nullptr, 16));
    mqtt->on_message(mqtt->topic, bytes);
  } else if (what == "cost") { /* of the last sensor */
    hub->set_cost(std::stoll(a));
  } else if (what == "decide") {
    hub->set_budget(a == "-" ? HC_NO_BUDGET : std::stoll(a));
    hub->set_item_size(std::stoi(b));
    hub->update();
  }
}

inline void drive(esphome::hardcase::Hub *hub) {
  static std::string line;
  static bool was_deciding, is_asked;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  App.set_loop_interval(1);
  if (is_asked && !hub->is_deciding()) {
    show(hub);
    is_asked = false;
  }
  struct pollfd in = {0, POLLIN, 0};
  for (char c; poll(&in, 1, 0) > 0 && read(0, &c, 1) == 1;) {
    if (c != '\n') {
      line.push_back(c);
      continue;
    }
    is_asked |= line.rfind("decide", 0) == 0;
    command(hub, std::istringstream(line));
    line.clear();
    if (is_asked)
      break;
  }
}
