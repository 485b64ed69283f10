package io.postdate.client;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;

/** The query of a URL. */
final class Query {
  private final Map<String, String> values = new LinkedHashMap<>();

  Query() {}

  Query(Query from) {
    values.putAll(from.values);
  }

  /** Sets a value; null: as it is. */
  Query set(String name, Object value) {
    if (value != null) {
      values.put(name, String.valueOf(value));
    }
    return this;
  }

  String on(String path) {
    String query =
        values.entrySet().stream()
            .map(value -> value.getKey() + "=" + encode(value.getValue()))
            .collect(Collectors.joining("&"));
    return query.isEmpty() ? path : path + "?" + query;
  }

  /** Fills values into a path such as /v1/messages/%s. */
  static String path(String path, String... values) {
    Object[] segments = new Object[values.length];
    for (int n = 0; n < values.length; n++) {
      if (values[n] == null || values[n].matches("\\.{0,2}")) {
        throw new IllegalArgumentException(
            "\"" + values[n] + "\" cannot stand in a path: give an id or a name");
      }
      segments[n] = encode(values[n]).replace("+", "%20");
    }
    return String.format(path, segments);
  }

  /** The path of one message. */
  static String message(String scheduleId) {
    return path("/v1/messages/%s", scheduleId);
  }

  private static String encode(String value) {
    return URLEncoder.encode(value, StandardCharsets.UTF_8);
  }
}
