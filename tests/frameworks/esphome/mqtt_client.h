/* SPDX-License-Identifier: Apache-2.0 */
/* As much of ESPHome's MQTT client as the component uses; drive.h connects it and gives it messages. */
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "esphome/core/component.h"

namespace esphome::mqtt {

class MQTTClientComponent : public Component {
 public:
  MQTTClientComponent();
  bool is_connected() { return this->is_up; }
  void set_on_connect(std::function<void(bool)> &&callback) { this->on_connect = std::move(callback); }
  void subscribe(const std::string &topic, std::function<void(const std::string &, const std::string &)> callback,
                 uint8_t qos = 0) {
    this->topic = topic;
    this->on_message = std::move(callback);
  }
  bool publish(const std::string &topic, const std::string &payload, uint8_t qos, bool retain) {
    printf("@publish %s %d %d ", topic.c_str(), qos, retain);
    for (unsigned char byte : payload)
      printf("%02x", byte);
    puts("");
    return this->is_up;
  }
  bool is_up{false};
  std::string topic;
  std::function<void(bool)> on_connect;
  std::function<void(const std::string &, const std::string &)> on_message;
};

inline MQTTClientComponent *global_mqtt_client;
inline MQTTClientComponent::MQTTClientComponent() { global_mqtt_client = this; }

struct Entity {
  Entity(void *) {}
};
using MQTTSensorComponent = Entity;
using MQTTTextSensor = Entity;
using MQTTSwitchComponent = Entity;

}  // namespace esphome::mqtt
