package io.postdate.client.receivers;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.Collection;
import java.util.Map;

/** Headers as libraries have them: texts, bytes, numbers, or lists of these. */
final class Headers {
  private final Map<String, ?> headers;

  Headers(Map<String, ?> headers) {
    this.headers = headers;
  }

  /** A header's value; null: there is none. Names are the same in capitals. */
  String get(String name) {
    Object value = headers.get(name);
    if (value == null) {
      value =
          headers.entrySet().stream()
              .filter(header -> header.getKey() != null && header.getKey().equalsIgnoreCase(name))
              .map(Map.Entry::getValue)
              .findFirst()
              .orElse(null);
    }
    if (value instanceof Collection<?> values) {
      value = values.isEmpty() ? null : values.iterator().next();
    }
    if (value instanceof byte[] bytes) {
      return new String(bytes, StandardCharsets.UTF_8);
    }
    return value == null ? null : value.toString(); // RabbitMQ's LongString too
  }

  String required(String name) {
    String value = get(name);
    if (value == null) {
      throw new HeadersException(
          "there is no header " + name + ": the message is not from Postdate");
    }
    return value;
  }

  Instant time(String name) {
    String text = required(name);
    try {
      return Instant.parse(text);
    } catch (DateTimeParseException e) {
      throw new HeadersException(name + " is no time: " + text);
    }
  }

  int number(String name, int least) {
    String text = required(name);
    if (!text.matches("\\d{1,9}") || Integer.parseInt(text) < least) {
      throw new HeadersException(name + " is no number from " + least + ": " + text);
    }
    return Integer.parseInt(text);
  }
}
