package io.postdate.client;

import io.postdate.client.model.Status;
import java.time.Instant;

/** Selects messages. What is not set matches every message. */
public final class MessageFilter {
  private final Query query = new Query().set("limit", 1000);

  /** Matches every message. */
  public MessageFilter() {}

  /** Those of this status. */
  public MessageFilter status(Status status) {
    query.set("status", status);
    return this;
  }

  /**
   * Those to this channel.
   *
   * @param channel such as rabbitmq:orders
   */
  public MessageFilter channel(String channel) {
    query.set("channel", channel);
    return this;
  }

  /** Those that have this label. */
  public MessageFilter label(String label) {
    query.set("label", label);
    return this;
  }

  /**
   * Those whose scheduleId begins so.
   *
   * @param prefix its beginning
   */
  public MessageFilter idPrefix(String prefix) {
    query.set("idPrefix", prefix);
    return this;
  }

  /**
   * Those that recur, or those that do not.
   *
   * @param recurring true: those with a recurrence, also if they have ended; false: those without
   */
  public MessageFilter recurring(boolean recurring) {
    query.set("recurring", recurring);
    return this;
  }

  /**
   * Those whose execution time is not before this.
   *
   * @param from the first time that counts
   */
  public MessageFilter from(Instant from) {
    query.set("from", from);
    return this;
  }

  /**
   * Those whose execution time is before this.
   *
   * @param to the first time that does not count
   */
  public MessageFilter to(Instant to) {
    query.set("to", to);
    return this;
  }

  /** How many messages are in one answer. Default: 1,000, which is the maximum. */
  public MessageFilter pageSize(int size) {
    query.set("limit", size);
    return this;
  }

  String path(String cursor) {
    return new Query(query).set("cursor", cursor).on("/v1/messages");
  }
}
