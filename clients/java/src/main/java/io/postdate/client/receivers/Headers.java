package io.postdate.client.receivers;

import java.nio.charset.StandardCharsets;
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
}
