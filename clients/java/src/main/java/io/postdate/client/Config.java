package io.postdate.client;

import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.time.Clock;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** How a client works. Everything has a default. */
public final class Config {
  List<String> servers;
  final Map<String, String> headers = new LinkedHashMap<>();
  HttpClient http;
  Duration answerTimeout = Duration.ofSeconds(40);
  Duration retryFor = Duration.ofMinutes(1);
  int requests = 2;
  Clock clock = Clock.systemUTC();

  /** The defaults, with what the environment says. */
  public Config() {
    servers(environment("POSTDATE_SERVER", "http://127.0.0.1:8080"));
    apiKey(environment("POSTDATE_API_KEY", null));
    tenant(environment("POSTDATE_AS_TENANT", null));
  }

  /**
   * The addresses of one node, or of several nodes of one cluster. Default: {@code
   * POSTDATE_SERVER}, else {@code http://127.0.0.1:8080}.
   */
  public Config servers(String... servers) {
    if (servers.length == 0) {
      throw new IllegalArgumentException(
          "there are no servers: name at least one, like http://127.0.0.1:8080");
    }
    this.servers = List.of(servers).stream().map(Config::address).toList();
    return this;
  }

  /**
   * The credential. Default: {@code POSTDATE_API_KEY}.
   *
   * @param key the key's text; null: none
   */
  public Config apiKey(String key) {
    return header("Authorization", key == null ? null : "Bearer " + key);
  }

  /**
   * The tenant for which an administrator's key acts. Default: {@code POSTDATE_AS_TENANT}, else the
   * key's own.
   *
   * @param tenant the tenant; null: the key's own
   */
  public Config tenant(String tenant) {
    return header("Postdate-Tenant", tenant);
  }

  /**
   * A header that is sent with every request.
   *
   * @param value null: it is not sent
   */
  public Config header(String name, String value) {
    if (value == null) {
      headers.remove(name);
    } else {
      checkHeader(name, value);
      headers.put(name, value);
    }
    return this;
  }

  /**
   * What makes the requests, and handles TLS and proxies. Default: a new one.
   *
   * @param http a client of HTTP, which should not follow redirects: one may turn a POST into a GET
   */
  public Config http(HttpClient http) {
    this.http = http;
    return this;
  }

  /**
   * How long one try waits for its answer, not counting a long poll's wait. Default: 40 s, longer
   * than a node takes to give up.
   */
  public Config answerTimeout(Duration timeout) {
    answerTimeout = timeout;
    return this;
  }

  /**
   * How long after its first try a call may be tried again. Default: 1 min.
   *
   * @param time the time; zero: no call is tried again
   */
  public Config retryFor(Duration time) {
    retryFor = time;
    return this;
  }

  /**
   * How many requests for gathered schedules are in progress at most, and likewise for cancels. The
   * more there are, the fewer calls share one. Default: 2.
   */
  public Config requests(int requests) {
    if (requests < 1) {
      throw new IllegalArgumentException("with no request in progress nothing is sent: 1 is least");
    }
    this.requests = requests;
    return this;
  }

  /** The clock of the ids that the client makes. */
  Config clock(Clock clock) {
    this.clock = clock;
    return this;
  }

  /** Refuses what cannot be a header. The error does not tell the value, which may be a key. */
  static void checkHeader(String name, String value) {
    try {
      HttpRequest.newBuilder().header(name, value);
    } catch (IllegalArgumentException e) {
      throw new IllegalArgumentException(
          "the header "
              + name
              + " cannot be sent with this value: see that it has no line break, no other control"
              + " character, and only ASCII");
    }
  }

  private static String environment(String name, String missing) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? missing : value;
  }

  private static String address(String server) {
    String address = (server.contains("://") ? server : "http://" + server).replaceFirst("/$", "");
    if (!address.matches("https?://[^/\\s]+(/\\S*)?") || address.endsWith("/v1")) {
      throw new IllegalArgumentException(
          "\"" + server + "\" is not the address of a server: write it like http://127.0.0.1:8080");
    }
    return address;
  }
}
