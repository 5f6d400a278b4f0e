/* SPDX-License-Identifier: Apache-2.0 */
/* A policy as a polling component: each update is a decision, which asks one sensor at a time in the policy's order. */
#pragma once

#include <string>
#include <vector>

#include "esphome/core/component.h"
#include "esphome/core/defines.h"
#include "esphome/components/sensor/sensor.h"
#ifdef USE_SWITCH
#include "esphome/components/switch/switch.h"
#endif
#include "esphome/components/text_sensor/text_sensor.h"

#include "exchange.h"
#include "hardcase.h"

namespace esphome::hardcase {

#ifdef USE_SWITCH
using Supply = switch_::Switch;
#else
using Supply = void;
#endif

/** One feature of a sensor of the policy; type: i, f or d, as in its struct of C. */
struct Feature {
  char type;
  sensor::Sensor *number;
  text_sensor::TextSensor *text;
  std::vector<std::string> texts;
  bool is_fresh{false};
};

/** A sensor of the policy. */
struct Source {
  const char *name;
  int64_t cost;
  const char *origin;
  size_t bytes;
  uint32_t settle_ms, timeout_ms;
  Supply *supply;
  std::vector<Feature> features{};
  std::vector<PollingComponent *> components{};
};

class Hub : public PollingComponent {
 public:
  // Words of 64 bits: the image, golden cases, their readings, and the image that decided them if it is another.
  void set_image(const uint64_t *table, size_t image, size_t golden, size_t readings, size_t trained) {
    this->image_ = table;
    this->image_words_ = image;
    this->golden_words_ = golden;
    this->reading_words_ = readings;
    this->trained_words_ = trained;
  }
  void set_results(std::vector<const char *> classes, int steps) {
    this->classes_ = std::move(classes);
    this->steps_ = steps;
  }
  // In the policy's order of sensors, and of features within a sensor.
  void add_sensor(const char *name, int64_t cost, const char *origin, size_t bytes, uint32_t settle_ms,
                  uint32_t timeout_ms, Supply *supply) {
    this->sources_.push_back({name, cost, origin, bytes, settle_ms, timeout_ms, supply});
  }
  void add_number(char type, sensor::Sensor *number) {
    this->sources_.back().features.push_back({type, number, nullptr, {}});
  }
  void add_text(text_sensor::TextSensor *text, std::vector<std::string> texts) {
    this->sources_.back().features.push_back({'i', nullptr, text, std::move(texts)});
  }
  void add_component(PollingComponent *component) { this->sources_.back().components.push_back(component); }

  void set_budget(int64_t micro) { this->budget_ = micro; }
  void set_item_size(int32_t item_size) { this->item_size_ = item_size; }
  void set_cloud(const std::string &device, uint32_t deadline_ms, uint32_t resend_ms, const std::string &hpc,
                 uint16_t n_values, int64_t n_classes);

  SUB_TEXT_SENSOR(decision)
  SUB_TEXT_SENSOR(route)
  SUB_SENSOR(confidence)
  SUB_SENSOR(cost)
  SUB_SENSOR(value)

 public:
  void setup() override;
  void dump_config() override;
  void update() override;
  void loop() override;
  float get_setup_priority() const override { return setup_priority::LATE; }
  /** The last decision, as the kernel has it; between two decisions. */
  const hc_session *decision() const { return this->session_; }
  bool is_deciding() const { return this->phase_ != Phase::IDLE; }

 protected:
  enum class Phase { IDLE, SETTLING, READING, ASKING };

  void next_(uint64_t now);
  void begin_(uint64_t now, int sensor);
  void read_(uint64_t now);
  bool is_sound_();
  bool is_complete_() const;
  void feed_();
  const void *pack_();
  uint64_t supply_(Supply *wanted, uint64_t now);
  bool reads_with_(const Supply *supply) const;
  void ask_(uint64_t now);
  void forward_(uint64_t now);
  void publish_();
  uint32_t connection_() const;

  static std::vector<Hub *> hubs;  // of this board

  std::vector<Source> sources_;
  std::vector<uint64_t> readings_, memory_;
  std::vector<const char *> classes_;
  const uint64_t *image_{nullptr};
  size_t image_words_{0}, golden_words_{0}, reading_words_{0}, trained_words_{0};
  int steps_{0};
  hc_session *session_{nullptr};
  Exchange exchange_;
  std::string request_topic_, reply_topic_;
  Supply *on_{nullptr};
  uint64_t on_since_{0}, until_{0};
  int64_t budget_{HC_NO_BUDGET}, n_classes_{0};
  int32_t item_size_{1};
  uint32_t deadline_ms_{0}, connections_{1};
  uint16_t n_values_{0};
  int asked_{0};
  Phase phase_{Phase::IDLE};
};

}  // namespace esphome::hardcase
