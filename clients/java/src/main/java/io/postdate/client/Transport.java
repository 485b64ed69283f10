package io.postdate.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import io.postdate.client.model.Problem;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.SSLHandshakeException;

/** Makes requests, to one server until it fails, then to the next. */
final class Transport {
  /** Makes something of an answer. */
  interface Reader<T> {
    T read(Answer answer) throws JsonProcessingException;
  }

  final Config config;
  private final HttpClient http;
  private final AtomicLong current = new AtomicLong();

  Transport(Config config) {
    this.config = config;
    http =
        config.http != null
            ? config.http
            : HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  }

  /** The server that the next request goes to. */
  String server() {
    return config.servers.get((int) (current.get() % config.servers.size()));
  }

  /**
   * Makes one request. If it fails and another server may do better, the next goes there. Whoever
   * completes the future ends the request.
   */
  <T> CompletableFuture<T> attempt(Call call, Reader<T> reader) {
    long used = current.get();
    String server = server();
    Duration limit = config.answerTimeout.plus(call.waits());
    CompletableFuture<T> result = new CompletableFuture<>();
    long askedAt = System.nanoTime();
    CompletableFuture<HttpResponse<byte[]>> exchange =
        http.sendAsync(request(server, call), BodyHandlers.ofByteArray());
    result.whenComplete((value, error) -> exchange.cancel(true));
    exchange
        .copy()
        .orTimeout(limit.toMillis(), TimeUnit.MILLISECONDS)
        .whenCompleteAsync( // what a caller does next must not hold up the thread of all timers
            (response, error) -> {
              try {
                if (error != null) {
                  throw noAnswer(server, call, limit, error);
                }
                result.complete(read(server, call, response, askedAt, reader));
              } catch (RuntimeException e) {
                if (e instanceof PostdateException failed && failed.passing() && !result.isDone()) {
                  current.compareAndSet(used, used + 1);
                }
                result.completeExceptionally(e);
              }
            });
    return result;
  }

  private HttpRequest request(String server, Call call) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(server + call.path()));
    request.method(
        call.method(),
        call.body() == null ? BodyPublishers.noBody() : BodyPublishers.ofString(call.body()));
    if (call.body() != null) {
      request.setHeader("Content-Type", "application/json");
    }
    config.headers.forEach(request::setHeader);
    call.headers().forEach(request::setHeader);
    return request.build();
  }

  private static <T> T read(
      String server, Call call, HttpResponse<byte[]> response, long askedAt, Reader<T> reader) {
    String text = new String(response.body(), StandardCharsets.UTF_8);
    if (response.statusCode() < 200 || response.statusCode() > 299) {
      throw problem(response, text);
    }
    try {
      return reader.read(new Answer(response.statusCode(), response.headers(), text, askedAt));
    } catch (JsonProcessingException | RuntimeException e) {
      throw NoAnswerException.garbled(server, !call.isGet(), e);
    }
  }

  private static ProblemException problem(HttpResponse<?> response, String text) {
    Problem problem = null;
    try {
      problem = Json.MAPPER.readValue(text, Problem.class);
    } catch (JsonProcessingException e) {
      // a proxy's page
    }
    if (problem == null) {
      problem = new Problem(); // only its status is known
    }
    String requestId = response.headers().firstValue("X-Request-Id").orElse(null);
    String after = response.headers().firstValue("Retry-After").orElse("");
    long seconds = after.matches("\\d{1,9}") ? Long.parseLong(after) : 0; // a date needs a clock
    return new ProblemException(
        response.statusCode(), problem, requestId, Duration.ofSeconds(seconds), null, null);
  }

  private static NoAnswerException noAnswer(
      String server, Call call, Duration limit, Throwable error) {
    Throwable why = error instanceof CompletionException ? error.getCause() : error;
    if (why instanceof TimeoutException) {
      why = new TimeoutException("none within " + limit.toMillis() + " ms");
    }
    return new NoAnswerException(server, !call.isGet() && !wasNotConnected(why), why);
  }

  /** Whether there was no connection on which a request could have gone out. */
  private static boolean wasNotConnected(Throwable why) {
    return why instanceof ConnectException
        || why instanceof HttpConnectTimeoutException
        || why instanceof SSLHandshakeException;
  }
}
