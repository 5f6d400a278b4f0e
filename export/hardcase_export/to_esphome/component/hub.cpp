/* SPDX-License-Identifier: Apache-2.0 */
#include "hub.h"

#include <cinttypes>
#include <cmath>

#include "esphome/core/hal.h"
#include "esphome/core/helpers.h"
#include "esphome/core/log.h"
#ifdef USE_MQTT
#include "esphome/components/mqtt/mqtt_client.h"
#endif
#ifdef USE_HARDCASE_SELF_TEST
#include "replay.h"
#endif

namespace esphome::hardcase {

static const char *const TAG = "hardcase";
static const char *const ROUTES[] = {"local", "cloud", "degraded"};
std::vector<Hub *> Hub::hubs;

void Hub::set_cloud(const std::string &device, uint32_t deadline_ms, uint32_t resend_ms, const std::string &hpc,
                    uint16_t n_values, int64_t n_classes) {
  this->request_topic_ = "hardcase/v1/" + device + "/request";
  this->reply_topic_ = "hardcase/v1/" + device + "/reply";
  this->deadline_ms_ = deadline_ms;
  this->exchange_.set_resend(resend_ms);
  this->exchange_.set_hpc(hpc);
  this->n_values_ = n_values;
  this->n_classes_ = n_classes;
}

/* Whether the image is what the configuration says, can do no harm, and decides here as the exporter did. */
bool Hub::is_sound_() {
  size_t most = 0;
  if (!hc_check(this->image_, this->image_words_ * 8))
    return false;
  std::vector<uint32_t> offsets{0};
  for (size_t k = 0; k < this->sources_.size(); k++) {
    const size_t bytes = this->sources_[k].bytes;
    if (hc_readings_bytes(this->image_, k) != bytes)
      return false;
    most = std::max(most, bytes);
    offsets.push_back(offsets.back() + (bytes + 7) / 8 * 8);
  }
  this->readings_.resize(most / 8 + 1);
  this->memory_.resize(hc_session_bytes(this->image_) / 8 + 1);
  this->session_ = reinterpret_cast<hc_session *>(this->memory_.data());
  if (hc_start(this->session_, this->image_, HC_NO_BUDGET, 1, HC_NO_CLOUD) != 0)
    return false;
#ifdef USE_HARDCASE_SELF_TEST
  if (this->golden_words_ != 0) {
    const uint64_t *golden = this->image_ + this->image_words_;
    const uint64_t *trained = golden + this->golden_words_ + this->reading_words_;
    if (this->trained_words_ == 0)
      trained = this->image_;
    else if (!hc_check(trained, this->trained_words_ * 8))
      return false;
    const hc_golden cases{trained, static_cast<int>(this->sources_.size()),
                          reinterpret_cast<const int64_t *>(golden), golden + this->golden_words_, offsets.data()};
    int wrong;
    const int right = hc_replay(&cases, this->session_, &wrong), all = golden[0];
    ESP_LOGI(TAG, "%d of %d golden cases are right", right, all);
    return right == all;
  }
#endif
  return true;
}

void Hub::setup() {
  if (!this->is_sound_()) {
    this->mark_failed(LOG_STR("the image is damaged, or this machine does not decide as the exporter did"));
    return;
  }
  hubs.push_back(this);
  for (Source &source : this->sources_) {
    for (Feature &feature : source.features) {
      bool *is_fresh = &feature.is_fresh;
      if (feature.text != nullptr) {
        feature.text->add_on_state_callback([is_fresh](const std::string &) { *is_fresh = true; });
      } else {
        feature.number->add_on_state_callback([is_fresh](float) { *is_fresh = true; });
      }
    }
  }
#ifdef USE_MQTT
  if (!this->reply_topic_.empty()) {
    mqtt::global_mqtt_client->set_on_connect([this](bool) {
      this->connections_++;
      this->exchange_.connected();
    });
    mqtt::global_mqtt_client->subscribe(this->reply_topic_, [this](const std::string &, const std::string &message) {
      const char *reason = this->exchange_.received(millis_64(), message, this->n_classes_);
      if (*reason)
        ESP_LOGW(TAG, "A reply was dropped: %s", reason);
    });
  }
#endif
  this->disable_loop();
}

void Hub::dump_config() {
  ESP_LOGCONFIG(TAG, "hardcase:");
  for (const Source &source : this->sources_)
    ESP_LOGCONFIG(TAG, "  Sensor '%s': cost %.6g (%s)", source.name, source.cost / 1e6, source.origin);
  if (!this->request_topic_.empty())
    ESP_LOGCONFIG(TAG, "  Hard cases: %s", this->request_topic_.c_str());
  LOG_UPDATE_INTERVAL(this);
}

void Hub::update() {
  if (this->is_failed())
    return;
  if (this->is_deciding()) {
    ESP_LOGW(TAG, "The last decision has not ended; choose a longer update_interval");
    return;
  }
  const uint64_t now = millis_64();
  const int cloud = this->connection_() && this->exchange_.can_ask(now) ? HC_CLOUD : HC_NO_CLOUD;
  if (hc_start(this->session_, this->image_, this->budget_, this->item_size_, cloud) != 0) {
    ESP_LOGE(TAG, "The budget is less than a decision costs at its start");
    return;
  }
  this->enable_loop();
  this->next_(now);
}

void Hub::loop() {
  const uint64_t now = millis_64();
  switch (this->phase_) {
    case Phase::SETTLING:
      if (now >= this->until_)
        this->read_(now);
      break;
    case Phase::READING:
      if (!this->is_complete_() && now < this->until_)
        break;
      this->feed_();
      this->next_(now);
      break;
    case Phase::ASKING:
      this->forward_(now);
      break;
    case Phase::IDLE:
      this->disable_loop();
  }
}

/* Go on until the kernel needs something that takes time. */
void Hub::next_(uint64_t now) {
  switch (hc_next(this->session_)) {
    case HC_NEED_SENSORS:
      this->begin_(now, hc_wanted(this->session_));
      break;
    case HC_NEED_REPLY:
      this->supply_(nullptr, now);
      this->ask_(now);
      break;
    default:
      this->supply_(nullptr, now);
      this->phase_ = Phase::IDLE;
      this->publish_();
  }
}

void Hub::begin_(uint64_t now, int sensor) {
  this->asked_ = sensor;
  const Source &source = this->sources_[sensor];
  this->until_ = this->supply_(source.supply, now) + source.settle_ms;
  if (source.supply != nullptr && now < this->until_) {
    this->phase_ = Phase::SETTLING;
  } else {
    this->read_(now);
  }
}

bool Hub::reads_with_(const Supply *supply) const {
  return (this->phase_ == Phase::SETTLING || this->phase_ == Phase::READING) &&
         this->sources_[this->asked_].supply == supply;
}

/* Switch this supply on, and off what was switched on before; since when it is on, 0 if nobody here has switched it on.
 * One that was on stays on, and one that another policy reads with is for that to switch off. */
uint64_t Hub::supply_(Supply *wanted, uint64_t now) {
#ifdef USE_SWITCH
  if (this->on_ != nullptr && this->on_ != wanted) {
    auto heir = std::find_if(hubs.begin(), hubs.end(),
                             [this](Hub *hub) { return hub != this && hub->reads_with_(this->on_); });
    if (heir != hubs.end()) {
      (*heir)->on_ = this->on_;
      (*heir)->on_since_ = this->on_since_;
    } else {
      this->on_->turn_off();
    }
    this->on_ = nullptr;
  }
  if (wanted != nullptr && !wanted->state) {
    wanted->turn_on();
    this->on_ = wanted;
    this->on_since_ = now;
  }
  for (const Hub *hub : hubs) {
    if (wanted != nullptr && hub->on_ == wanted)
      return hub->on_since_;
  }
#endif
  return 0;
}

void Hub::read_(uint64_t now) {
  Source &source = this->sources_[this->asked_];
  this->phase_ = Phase::READING;
  this->until_ = now + source.timeout_ms;
  for (Feature &feature : source.features)
    feature.is_fresh = false;
  for (PollingComponent *component : source.components) {
    if (component->is_failed()) {
      this->until_ = now;
    } else {
      component->update();
    }
  }
}

bool Hub::is_complete_() const {
  for (const Feature &feature : this->sources_[this->asked_].features) {
    if (!feature.is_fresh)
      return false;
  }
  return true;
}

void Hub::feed_() {
  const bool is_complete = this->is_complete_();
  const Source &source = this->sources_[this->asked_];
  if (!is_complete)
    ESP_LOGW(TAG, "Sensor '%s' has failed", source.name);
  hc_feed(this->session_, this->asked_, is_complete ? this->pack_() : nullptr);
}

/* The readings as the kernel has them: a struct of C. */
const void *Hub::pack_() {
  auto *const begin = reinterpret_cast<uint8_t *>(this->readings_.data());
  uint8_t *at = begin;
  for (const Feature &feature : this->sources_[this->asked_].features) {
    const float x = feature.number != nullptr ? feature.number->state : NAN;
    if (feature.type == 'd') {
      const double wide = x;
      at += -(at - begin) & 7;
      memcpy(at, &wide, 8);
      at += 8;
      continue;
    }
    int32_t whole = INT32_MIN;
    if (feature.text != nullptr) {
      for (size_t k = 0; k < feature.texts.size(); k++) {
        if (feature.texts[k] == feature.text->state)
          whole = k;
      }
    } else if (x == std::floor(x) && std::fabs(x) < 2147483648.0f) {
      whole = static_cast<int32_t>(x);
    }
    memcpy(at, feature.type == 'f' ? static_cast<const void *>(&x) : &whole, 4);
    at += 4;
  }
  return begin;
}

void Hub::ask_(uint64_t now) {
  uint8_t id[16];
  random_bytes(id, sizeof(id));
  this->exchange_.ask(now, id, this->deadline_ms_);
  this->phase_ = Phase::ASKING;
  this->forward_(now);
}

void Hub::forward_(uint64_t now) {
  switch (this->exchange_.poll(now, this->connection_(), [this]() { return hc_resend(this->session_) == 1; })) {
    case Exchange::SEND: {
#ifdef USE_MQTT
      const std::string message =
          this->exchange_.message(this->n_values_, hc_request(this->session_), hc_request_bytes(this->session_));
      if (mqtt::global_mqtt_client->publish(this->request_topic_, message, 1, false))
        this->exchange_.sent();
#endif
      break;
    }
    case Exchange::OVER:
      if (!this->exchange_.has_reply() ||
          hc_reply(this->session_, this->exchange_.result(), this->exchange_.confidence()) != 0)
        hc_no_reply(this->session_);
      this->next_(now);
      break;
    default:
      break;
  }
}

uint32_t Hub::connection_() const {
#ifdef USE_MQTT
  if (!this->request_topic_.empty() && mqtt::global_mqtt_client->is_connected())
    return this->connections_;
#endif
  return 0;
}

void Hub::publish_() {
  const hc_session *s = this->session_;
  const float confidence = s->confidence / 100.0f, cost = (s->spent - s->saved) / 1e6;
  const double value = std::ldexp(static_cast<double>(s->result), -this->steps_);
  const auto at = static_cast<uint64_t>(s->result);
  const char *label = at < this->classes_.size() ? this->classes_[at] : "value";
  ESP_LOGD(TAG, "%s (%.6g), confidence %.2f %%, route %s, cost %.6g", label, value, confidence, ROUTES[s->route], cost);
  if (this->route_text_sensor_ != nullptr)
    this->route_text_sensor_->publish_state(ROUTES[s->route]);
  if (this->confidence_sensor_ != nullptr)
    this->confidence_sensor_->publish_state(confidence);
  if (this->cost_sensor_ != nullptr)
    this->cost_sensor_->publish_state(cost);
  if (this->value_sensor_ != nullptr)
    this->value_sensor_->publish_state(value);
  if (this->decision_text_sensor_ != nullptr)
    this->decision_text_sensor_->publish_state(label);
}

}  // namespace esphome::hardcase
