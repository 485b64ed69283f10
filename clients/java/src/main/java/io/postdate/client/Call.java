package io.postdate.client;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/**
 * A call at the level of HTTP.
 *
 * @param method such as GET
 * @param path with its query, such as /v1/messages?limit=10
 * @param body JSON, unless the headers have another Content-Type; null: none
 * @param headers in addition to those of every request
 * @param repeatable it is safe to do the call twice, so it is tried again if it may have been done.
 *     A GET always is
 * @param waits how long the server may wait before it answers
 */
public record Call(
    String method,
    String path,
    String body,
    Map<String, String> headers,
    boolean repeatable,
    Duration waits) {
  /** Refuses what cannot be a header. */
  public Call {
    headers.forEach(Config::checkHeader);
  }

  /**
   * A call without headers that is not repeatable.
   *
   * @param method such as GET
   * @param path with its query
   * @param body JSON; null: none
   */
  public Call(String method, String path, String body) {
    this(method, path, body, Map.of(), false, Duration.ZERO);
  }

  Call ifVersion(String version) {
    return version == null ? this : header("If-Match", "\"" + version + "\"");
  }

  Call header(String name, String value) {
    Map<String, String> all = new HashMap<>(headers);
    all.put(name, value);
    return new Call(method, path, body, all, repeatable, waits);
  }

  Call twice() {
    return new Call(method, path, body, headers, true, waits);
  }

  Call waiting(Duration wait) {
    return new Call(method, path, body, headers, repeatable, wait);
  }

  boolean isGet() {
    return method.equals("GET");
  }
}
