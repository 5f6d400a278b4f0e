/* SPDX-License-Identifier: Apache-2.0 */
/* What ESPHome's own mqtt_client.cpp asks of libraries that the host has not: names that resolve at once, JSON that says
 * nothing, and a network that drive.h connects and that prints what is published. It has the name of another platform's
 * backend, in whose place ESPHome's sources include it (tests/helpers/export/esphome.py). */
#pragma once

#include <functional>
#include <set>
#include <string>

#include "mqtt_backend.h"

using err_t = int;
enum { ERR_OK, ERR_INPROGRESS, ERR_ARG, LWIP_DNS_ADDRTYPE_IPV4 };
inline err_t dns_gethostbyname_addrtype(const char *, ip_addr_t *, void (*)(const char *, const ip_addr_t *, void *),
                                        void *, int) {
  return ERR_OK;
}

struct JsonObject {
  template<typename T> std::string operator[](const T &) { return ""; }
};
using JsonObjectConst = JsonObject;

namespace esphome::json {
using json_build_t = std::function<void(JsonObject)>;
inline std::string build_json(const json_build_t &) { return "{}"; }
inline bool parse_json(const std::string &, const std::function<bool(JsonObject)> &) { return false; }
}  // namespace esphome::json

namespace esphome::mqtt {

class MQTTBackendLibreTiny final : public MQTTBackend {
 public:
  MQTTBackendLibreTiny();
  void set_keep_alive(uint16_t) final {}
  void set_client_id(const char *) final {}
  void set_clean_session(bool) final {}
  void set_credentials(const char *, const char *) final {}
  void set_will(const char *, uint8_t, bool, const char *) final {}
  void set_server(network::IPAddress, uint16_t) final {}
  void set_server(const char *, uint16_t) final {}
  void set_on_connect(std::function<on_connect_callback_t> &&f) final { this->on_connect.add(std::move(f)); }
  void set_on_disconnect(std::function<on_disconnect_callback_t> &&) final {}
  void set_on_subscribe(std::function<on_subscribe_callback_t> &&) final {}
  void set_on_unsubscribe(std::function<on_unsubscribe_callback_t> &&) final {}
  void set_on_message(std::function<on_message_callback_t> &&f) final { this->on_message = std::move(f); }
  void set_on_publish(std::function<on_publish_user_callback_t> &&) final {}
  bool connected() const final { return this->is_up; }
  void connect() final { this->is_wanted = true; }
  void disconnect() final {}
  bool subscribe(const char *topic, uint8_t) final { return this->topics.insert(topic).second; }
  bool unsubscribe(const char *topic) final { return this->topics.erase(topic) != 0; }
  bool publish(const char *topic, const char *payload, size_t n, uint8_t qos, bool retain) final {
    printf("@publish %s %d %d ", topic, qos, retain);
    for (size_t k = 0; k < n; k++)
      printf("%02x", (unsigned char) payload[k]);
    puts("");
    return this->is_up;
  }

  bool is_up{false}, is_wanted{false};
  std::set<std::string> topics;
  CallbackManager<on_connect_callback_t> on_connect;
  std::function<on_message_callback_t> on_message;
};

inline MQTTBackendLibreTiny *backend;
inline MQTTBackendLibreTiny::MQTTBackendLibreTiny() { backend = this; }

struct MQTTComponent { /* of an entity, which has no topics here */
  MQTTComponent(void *) {}
  void schedule_resend_state() {}
  bool is_resend_pending() { return false; }
  void process_resend() {}
};
using MQTTSensorComponent = MQTTComponent;
using MQTTTextSensor = MQTTComponent;
using MQTTSwitchComponent = MQTTComponent;

}  // namespace esphome::mqtt
