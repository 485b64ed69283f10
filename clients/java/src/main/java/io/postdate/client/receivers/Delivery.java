package io.postdate.client.receivers;

import java.time.Instant;
import java.util.Map;

/**
 * What the headers of a message say.
 *
 * @param messageId the same for each attempt: drop repetitions by it. Of a series it names the
 *     occurrence too. Of a webhook it is not signed: there, drop by what {@link Webhooks#verify}
 *     returns
 * @param scheduleId the same for all occurrences of a series
 * @param executionTime when it was due
 * @param attempt from 1
 * @param possibleDuplicate the receiver may have the message already
 * @param traceparent of the request that scheduled it; null: there is none
 * @param tracestate what vendors added to traceparent; null: nothing
 * @param failed only on a failure channel: the message that could not be delivered; null: there is
 *     none
 */
public record Delivery(
    String messageId,
    String scheduleId,
    Instant executionTime,
    int attempt,
    boolean possibleDuplicate,
    String traceparent,
    String tracestate,
    Failed failed) {

  /**
   * Reads the headers of a webhook or of a record of Kafka.
   *
   * @param headers by name, in capitals or not; a value is a text, bytes or a list of these
   * @return what they say
   * @throws HeadersException if the message is not from Postdate
   */
  public static Delivery of(Map<String, ?> headers) {
    return of(headers, null);
  }

  /**
   * Reads the headers of a message of RabbitMQ, whose id is a property.
   *
   * @param headers of the message's properties
   * @param messageId of the message's properties
   * @return what they say
   * @throws HeadersException if the message is not from Postdate
   */
  public static Delivery of(Map<String, ?> headers, String messageId) {
    Headers all = new Headers(headers == null ? Map.of() : headers);
    String id = messageId != null ? messageId : all.get("message-id");
    return new Delivery(
        id != null ? id : all.required("ce-id"),
        all.required("postdate-schedule-id"),
        all.time("postdate-execution-time"),
        all.number("postdate-attempt", 1),
        "true".equals(all.get("postdate-possible-duplicate")),
        all.get("traceparent"),
        all.get("tracestate"),
        Failed.of(all));
  }
}
