package io.postdate.client.receivers;

import java.time.Instant;
import java.util.Map;

/**
 * What is said of a message that could not be delivered.
 *
 * @param messageId the message's
 * @param channel where it went; of a URL, the scheme and host
 * @param reason why it could not be delivered
 * @param attempts how often that was tried
 * @param time when it failed
 * @param possibleDuplicate it may have arrived all the same
 */
public record Failed(
    String messageId,
    String channel,
    String reason,
    int attempts,
    Instant time,
    boolean possibleDuplicate) {
  /**
   * Reads the headers of a message. It is for inboxes, whose messages have all else in fields; of
   * other messages, {@link Delivery#failed} is the same.
   *
   * @param headers by name
   * @return null: it is not a message that could not be delivered
   */
  public static Failed of(Map<String, ?> headers) {
    return of(new Headers(headers));
  }

  static Failed of(Headers headers) {
    return headers.get("postdate-failed-id") == null
        ? null
        : new Failed(
            headers.required("postdate-failed-id"),
            headers.required("postdate-failed-channel"),
            headers.required("postdate-failed-reason"),
            headers.number("postdate-failed-attempts", 0),
            headers.time("postdate-failed-time"),
            "true".equals(headers.get("postdate-failed-possible-duplicate")));
  }
}
