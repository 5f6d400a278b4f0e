/* SPDX-License-Identifier: Apache-2.0 */
/* Forwarding without ESPHome's types: when a request goes out, when again, for how long a busy or silent cloud is left
 * alone, and the bytes of docs/SPEC-wire-v1.md. The rules are those of hardcase_edge/exchange, which says why. No I/O and
 * no clock: the owner passes milliseconds that only rise, publishes what poll says, and reports what comes. */
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace esphome::hardcase {

class Exchange {
 public:
  enum Says { NOTHING, SEND, OVER };

  void set_resend(uint32_t ms) { this->resend_ms_ = ms; }
  void set_hpc(const std::string &hpc) { this->hpc_ = hpc; }

  /** Whether a request may begin: none waits, the cloud is not busy, and has answered of late or is to be tested. */
  bool can_ask(uint64_t now) const {
    return !this->waits_ && now >= this->quiet_until_ && (!this->is_open_ || now >= this->test_at_);
  }

  /** Begin a request, id: 16 random bytes. */
  void ask(uint64_t now, const uint8_t *id, uint32_t deadline_ms) {
    memcpy(this->id_, id, ID_BYTES);
    this->waits_ = this->may_send_ = true;
    this->is_ended_ = this->has_reply_ = false;
    this->is_test_ = this->is_open_;
    this->until_ = now + deadline_ms;
    this->next_at_ = now;
    this->n_sent_ = this->sent_on_ = 0;
    this->savings_ = std::min<uint32_t>(this->savings_ + 1, MOST_SAVED);
  }

  /** What to do now; connection: 0 while there is none, another number for each new one. may_resend charges the budget. */
  template<typename F> Says poll(uint64_t now, uint32_t connection, F may_resend) {
    if (!this->waits_)
      return NOTHING;
    if (this->is_ended_ || now >= this->until_) {
      if (!this->is_ended_ && this->n_sent_ && connection && (++this->n_silent_ >= MOST_SILENT || this->is_open_))
        this->open_(now);
      this->waits_ = false;
      return OVER;
    }
    if (!connection || !this->may_send_ || (now < this->next_at_ && connection == this->sent_on_))
      return NOTHING;
    if (this->n_sent_) {
      if (this->until_ - now <= WORTHWHILE_MS) {
        this->next_at_ = this->until_;
        return NOTHING;
      }
      if (this->is_test_ || this->savings_ < ASKS_PER_RESEND || !may_resend()) {
        this->may_send_ = false;
        return NOTHING;
      }
    }
    this->sent_on_ = connection;
    this->left_ms_ = this->until_ - now;
    const uint64_t pause = uint64_t(this->resend_ms_) << std::min<uint32_t>(this->n_sent_, 16);
    this->next_at_ = now + pause * (384 + this->id_[ID_BYTES - 1 - this->n_sent_ % ID_BYTES]) / 512;
    return SEND;
  }

  /** The request that poll said to send has gone out. */
  void sent() {
    if (this->n_sent_++)
      this->savings_ -= ASKS_PER_RESEND;
  }

  /** There is a new connection. */
  void connected() {
    this->is_open_ = false;
    this->n_silent_ = 0;
  }

  /** The message to publish after SEND: the kernel's request behind its header. */
  std::string message(uint16_t n_values, const uint8_t *request, size_t n) const {
    const uint8_t head[8] = {1, 1, uint8_t(n_values), uint8_t(n_values >> 8), uint8_t(this->left_ms_),
                             uint8_t(this->left_ms_ >> 8), uint8_t(this->left_ms_ >> 16), uint8_t(this->left_ms_ >> 24)};
    std::string out(reinterpret_cast<const char *>(head), sizeof(head));
    out.append(reinterpret_cast<const char *>(this->id_), ID_BYTES).append(this->hpc_);
    return out.append(reinterpret_cast<const char *>(request), n);
  }

  /** A message on the reply topic, n_classes 0: of values. Returns "", or why it is dropped, as the wire names it. */
  const char *received(uint64_t now, const std::string &message, int64_t n_classes) {
    const auto *m = reinterpret_cast<const uint8_t *>(message.data());
    if (message.size() != REPLY_BYTES)
      return message.size() > REPLY_BYTES ? "oversized" : "malformed";
    if (m[0] != 1 || m[1] != 2 || m[2] > 3 || m[3] || m[6] || m[7])
      return "malformed";
    if (message.compare(32, 32, this->hpc_) != 0)
      return "other_hpc";
    uint64_t bits = 0;
    for (int k = 7; k >= 0; k--)
      bits = bits << 8 | m[8 + k];
    const auto result = static_cast<int64_t>(bits);
    const int confidence = m[4] | m[5] << 8, status = m[2];
    if (status == 3 || confidence > 10000 || (status == OK && n_classes && (result < 0 || result >= n_classes)) ||
        (status == BUSY && (confidence || result < 1 || result > MAX_BUSY_MS)))
      return "malformed";
    if (!this->waits_ || this->is_ended_ || memcmp(m + 16, this->id_, ID_BYTES) != 0)
      return "unknown";
    this->connected();  // it answers: the circuit is closed
    if (status == BUSY) {
      const uint64_t quiet = std::min<uint64_t>(MAX_BUSY_MS, uint64_t(result) << std::min<uint32_t>(this->n_busy_++, 3));
      this->quiet_until_ = now + quiet + quiet * this->id_[0] / 512;
    } else {
      this->n_busy_ = 0;
    }
    this->is_ended_ = true;
    this->has_reply_ = status == OK;
    this->result_ = result;
    this->confidence_ = confidence;
    return "";
  }

  /** After OVER: whether the cloud has answered, and what. */
  bool has_reply() const { return this->has_reply_; }
  int64_t result() const { return this->result_; }
  int confidence() const { return this->confidence_; }
  /** After SEND: what is left of the deadline. */
  uint32_t left_ms() const { return this->left_ms_; }

 protected:
  static constexpr size_t ID_BYTES = 16, REPLY_BYTES = 64;
  static constexpr uint32_t WORTHWHILE_MS = 50, ASKS_PER_RESEND = 10, MOST_SAVED = 3 * ASKS_PER_RESEND, MOST_SILENT = 3;
  static constexpr uint64_t PAUSE_LEAST_MS = 500, PAUSE_MOST_MS = 30000;
  static constexpr int64_t MAX_BUSY_MS = 60000;
  static constexpr int OK = 0, BUSY = 2;

  void open_(uint64_t now) {
    if (!this->is_open_)
      this->opened_at_ = now;
    this->is_open_ = true;
    this->test_at_ = now + std::clamp((now - this->opened_at_) / 2, PAUSE_LEAST_MS, PAUSE_MOST_MS);
  }

  std::string hpc_;
  uint8_t id_[ID_BYTES]{};
  uint64_t until_{0}, next_at_{0}, quiet_until_{0}, opened_at_{0}, test_at_{0};
  int64_t result_{0};
  uint32_t resend_ms_{1000}, left_ms_{0}, n_sent_{0}, sent_on_{0}, savings_{MOST_SAVED}, n_silent_{0}, n_busy_{0};
  int confidence_{0};
  bool waits_{false}, is_ended_{false}, has_reply_{false}, may_send_{false}, is_test_{false}, is_open_{false};
};

}  // namespace esphome::hardcase
