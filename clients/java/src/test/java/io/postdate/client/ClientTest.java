package io.postdate.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.TextNode;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.postdate.client.model.Change;
import io.postdate.client.model.JobFilter;
import io.postdate.client.model.PayloadEncoding;
import io.postdate.client.model.ProblemType;
import io.postdate.client.model.ReceivedMessage;
import io.postdate.client.model.RecurrenceChange;
import io.postdate.client.model.Schedule;
import io.postdate.client.model.Scheduled;
import io.postdate.client.model.TenantChange;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class ClientTest {
  /** What the server answers: a status and a body. */
  private record Reply(int status, String body) {}

  private interface Server {
    Reply answer(HttpExchange request, JsonNode body) throws Exception;
  }

  private static final String PENDING = pending(new TextNode("a"));

  private final List<HttpServer> servers = new ArrayList<>();
  private final ExecutorService threads = Executors.newCachedThreadPool();

  @AfterEach
  void stop() {
    servers.forEach(server -> server.stop(0));
    threads.shutdownNow();
  }

  /** Starts a server, and returns how a client of it works. */
  private Config configOf(Server answers) throws IOException {
    HttpServer server =
        HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/", exchange -> serve(exchange, answers));
    server.setExecutor(threads);
    server.start();
    servers.add(server);
    String address = "http://127.0.0.1:" + server.getAddress().getPort();
    return new Config().servers(address).apiKey(null);
  }

  private static void serve(HttpExchange exchange, Server answers) throws IOException {
    String text = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
    try (exchange) {
      Reply reply = answers.answer(exchange, Json.MAPPER.readTree(text));
      byte[] body = reply.body.getBytes(StandardCharsets.UTF_8);
      exchange.sendResponseHeaders(reply.status, body.length);
      try (OutputStream to = exchange.getResponseBody()) {
        to.write(body);
      }
    } catch (Exception e) {
      throw new IOException(e); // the connection ends
    }
  }

  private static Schedule message(Object payload) {
    return new Schedule().channel("inbox:a").delay("1ms").payload(payload);
  }

  private static String pending(JsonNode scheduleId) {
    return "{\"scheduleId\": "
        + scheduleId
        + ", \"bucket\": 1, \"executionTime\": \"2027-01-31T09:30:00Z\", \"status\": \"PENDING\"}";
  }

  /** Answers one schedule, or many. */
  private static Reply scheduled(JsonNode body) {
    return body.isArray() ? results(body) : new Reply(201, pending(body.get("scheduleId")));
  }

  private static Reply results(JsonNode items) {
    List<String> results =
        StreamSupport.stream(items.spliterator(), false)
            .map(
                item ->
                    item.get("payload").asInt() == 7
                        ? "{\"error\": {\"type\": \"urn:postdate:problem:exists\", \"status\": 409,"
                            + " \"detail\": \"it exists\"}}"
                        : pending(item.get("scheduleId")))
            .toList();
    return new Reply(200, "{\"results\": [" + String.join(",", results) + "]}");
  }

  @Test
  void concurrentSchedulesShareRequests() throws Exception {
    CountDownLatch all = new CountDownLatch(1);
    Queue<Integer> requests = new ConcurrentLinkedQueue<>();
    PostdateAsyncClient client =
        new PostdateAsyncClient(
            configOf(
                (request, body) -> {
                  all.await();
                  requests.add(body.isArray() ? body.size() : 1);
                  return scheduled(body);
                }));
    List<CompletableFuture<Scheduled>> calls =
        IntStream.range(0, 1202).mapToObj(n -> client.schedule(message(n))).toList();
    all.countDown();
    Set<String> ids = new HashSet<>();
    for (int n = 0; n < calls.size(); n++) {
      if (n == 7) {
        ExecutionException failed = assertThrows(ExecutionException.class, calls.get(n)::get);
        ProblemException problem = assertInstanceOf(ProblemException.class, failed.getCause());
        assertEquals(ProblemType.EXISTS, problem.type());
        assertFalse(problem.mayBeDone());
      } else {
        ids.add(calls.get(n).get().getScheduleId());
      }
    }
    assertEquals(1201, ids.size());
    assertEquals(List.of(1, 1, 200, 500, 500), requests.stream().sorted().toList());
  }

  @Test
  void aRequestThatIsRefusedForOneItemIsHalved() throws Exception {
    CountDownLatch all = new CountDownLatch(1);
    PostdateAsyncClient client =
        new PostdateAsyncClient(
            configOf(
                (request, body) -> {
                  all.await();
                  if (body.toString().contains("large")) {
                    return new Reply(413, "{}");
                  }
                  return scheduled(body);
                }));
    List<CompletableFuture<Scheduled>> calls =
        List.of("a", "b", "c", "d", "large", "e", "f").stream()
            .map(payload -> client.schedule(message(payload)))
            .toList();
    all.countDown();
    for (int n = 0; n < calls.size(); n++) {
      if (n == 4) {
        assertThrows(ExecutionException.class, calls.get(n)::get);
      } else {
        calls.get(n).get();
      }
    }
  }

  @Test
  void aCallThatIsCancelledWhileItWaitsIsNotMade() throws Exception {
    CountDownLatch all = new CountDownLatch(1);
    BlockingQueue<JsonNode> requests = new LinkedBlockingQueue<>();
    PostdateAsyncClient client =
        new PostdateAsyncClient(
            configOf(
                    (request, body) -> {
                      all.await();
                      requests.add(body);
                      return scheduled(body);
                    })
                .requests(1));
    List<CompletableFuture<Scheduled>> calls =
        IntStream.range(0, 4).mapToObj(n -> client.schedule(message(n))).toList();
    calls.get(1).cancel(true);
    all.countDown();
    calls.get(3).get();
    assertEquals(0, requests.take().get("payload").asInt());
    JsonNode shared = requests.take();
    assertEquals(2, shared.size());
    assertEquals(2, shared.get(0).get("payload").asInt());
  }

  @Test
  void aRepeatedTryHasTheSameId() throws Exception {
    BlockingQueue<String> ids = new LinkedBlockingQueue<>();
    PostdateClient client =
        new PostdateClient(
            configOf(
                (request, body) -> {
                  ids.add(body.get("scheduleId").asText());
                  return ids.size() == 1 ? new Reply(503, "{}") : scheduled(body);
                }));
    Schedule message = message(1);
    client.schedule(message);
    assertEquals(ids.take(), ids.take());
    assertNull(message.getScheduleId()); // scheduled again, it is another message
  }

  @Test
  void theNextServerIsAskedIfOneFails() throws Exception {
    List<String> asked = new ArrayList<>();
    Config alive =
        configOf(
            (request, body) -> {
              asked.add(request.getRequestURI().getPath());
              return new Reply(200, "{\"status\": \"ok\"}");
            });
    Config dead =
        configOf(
            (request, body) -> {
              throw new IOException("it dies");
            });
    PostdateClient both =
        new PostdateClient(new Config().servers(dead.servers.get(0), alive.servers.get(0)));
    both.call(new Call("GET", Query.message("a/2027-01-31T09:30:00.000Z"), null));
    assertEquals(alive.servers.get(0), both.async().server());
    assertEquals(List.of("/v1/messages/a/2027-01-31T09:30:00.000Z"), asked);
  }

  @Test
  void anAnswerThatMakesNoSenseIsNotAskedForAgain() throws Exception {
    for (String answer :
        List.of(
            "<html>",
            "null",
            "{}",
            "{\"results\": []}",
            "{\"results\": [null, null]}",
            "{\"results\": [{\"error\": {}}, {\"error\": {}}]}")) {
      Queue<Integer> asked = new ConcurrentLinkedQueue<>();
      PostdateClient client =
          new PostdateClient(
              configOf(
                  (request, body) -> {
                    asked.add(1);
                    return new Reply(200, answer);
                  }));
      PostdateException failed =
          assertThrows(
              PostdateException.class, () -> client.scheduleAll(List.of(message(1), message(2))));
      assertInstanceOf(NoAnswerException.class, failed);
      assertTrue(failed.mayBeDone());
      assertEquals(1, asked.size());
    }
  }

  @Test
  void aProxysPageIsAProblemWithoutAType() throws Exception {
    for (int status : List.of(302, 502)) {
      PostdateClient client =
          new PostdateClient(
              configOf((request, body) -> new Reply(status, "<html>")).retryFor(Duration.ZERO));
      ProblemException problem = assertThrows(ProblemException.class, () -> client.trigger("a"));
      assertNull(problem.type());
      assertEquals(status, problem.status());
      assertEquals(status >= 500, problem.mayBeDone());
    }
  }

  @Test
  void bytesTimesAndNullsHaveTheirForms() throws Exception {
    BlockingQueue<JsonNode> bodies = new LinkedBlockingQueue<>();
    PostdateClient client =
        new PostdateClient(
            configOf(
                (request, body) -> {
                  bodies.add(body);
                  return new Reply(200, PENDING);
                }));
    byte[] bytes = {0, 1, (byte) 255};
    Schedule message =
        new Schedule().scheduleId("a").channel("inbox:a").executionTime(Instant.EPOCH);
    client.schedule(Payloads.set(message, bytes, "application/octet-stream"));
    assertEquals(
        Json.MAPPER.readTree(
            "{\"scheduleId\": \"a\", \"channel\": \"inbox:a\", \"executionTime\":"
                + " \"1970-01-01T00:00:00Z\", \"payload\": \"AAH/\", \"payloadEncoding\": \"base64\","
                + " \"contentType\": \"application/octet-stream\"}"),
        bodies.take());
    client.patch("a", new Change().recurrence(new RecurrenceChange().every("1h").cron(null)));
    assertEquals(
        Json.MAPPER.readTree("{\"recurrence\": {\"every\": \"1h\", \"cron\": null}}"),
        bodies.take());
    client.patch("a", new Change().payload(NullNode.instance));
    assertEquals(Json.MAPPER.readTree("{\"payload\": null}"), bodies.take());
    assertMayBeDone(() -> client.changeTenant("a", new TenantChange().pendingMax(null)));
    assertEquals(Json.MAPPER.readTree("{\"pendingMax\": null}"), bodies.take());

    ReceivedMessage received = new ReceivedMessage().payload("AAH/").contentType("a/b");
    assertArrayEquals(bytes, Payloads.bytes(received.payloadEncoding(PayloadEncoding.BASE64)));
    received = new ReceivedMessage().payload("é").contentType("text/plain");
    assertEquals(2, Payloads.bytes(received).length);
    received = received.contentType("application/json");
    assertEquals(4, Payloads.bytes(received).length);
  }

  @Test
  void whatIsInterruptedEnds() throws Exception {
    CountDownLatch asked = new CountDownLatch(1);
    PostdateClient client =
        new PostdateClient(
            configOf(
                (request, body) -> {
                  asked.countDown();
                  new CountDownLatch(1).await();
                  return null;
                }));
    CompletableFuture<Throwable> failed = new CompletableFuture<>();
    Thread caller =
        new Thread(
            () -> {
              Throwable error = assertThrows(NoAnswerException.class, () -> client.get("a"));
              failed.complete(Thread.currentThread().isInterrupted() ? error : null);
            });
    caller.start();
    asked.await();
    caller.interrupt();
    assertInstanceOf(NoAnswerException.class, failed.get());
  }

  @Test
  void aWorkerThatIsClosedAcknowledgesWhatItHandled() throws Exception {
    BlockingQueue<JsonNode> acked = new LinkedBlockingQueue<>();
    PostdateClient client = new PostdateClient(configOf(inbox(acked)));
    CompletableFuture<Worker> self = new CompletableFuture<>();
    try (Worker worker = client.consume("a", "b", message -> self.get().stop())) {
      self.complete(worker);
      worker.ended().get();
    }
    assertEquals(Json.MAPPER.readTree("{\"receipts\": [\"1\"]}"), acked.take());
  }

  @Test
  void aWorkerWhoseCallFailsEnds() throws Exception {
    PostdateClient client =
        new PostdateClient(
            configOf(
                (request, body) ->
                    new Reply(
                        403, "{\"type\": \"urn:postdate:problem:forbidden\", \"status\": 403}")));
    try (Worker worker = client.consume("a", "b", message -> {})) {
      ExecutionException failed = assertThrows(ExecutionException.class, worker.ended()::get);
      ProblemException problem = assertInstanceOf(ProblemException.class, failed.getCause());
      assertEquals(ProblemType.FORBIDDEN, problem.type());
    }
  }

  @Test
  void anIdThatWouldBeAnotherPathIsRefused() {
    PostdateClient client = new PostdateClient(new Config().servers("127.0.0.1:1"));
    for (String id : List.of("", ".", "..")) {
      assertThrows(IllegalArgumentException.class, () -> client.get(id));
      assertThrows(IllegalArgumentException.class, () -> client.cancel(id));
    }
  }

  @Test
  void anAddressThatIsNoneIsRefused() {
    for (String server : List.of("", "ftp://a", "http://a/v1", "not a url")) {
      assertThrows(IllegalArgumentException.class, () -> new Config().servers(server));
    }
  }

  /** A client whose one server answers everything so. */
  private PostdateClient answered(int status, String body) throws IOException {
    return new PostdateClient(configOf((request, sent) -> new Reply(status, body)));
  }

  private static void assertMayBeDone(Executable call) {
    assertTrue(assertThrows(NoAnswerException.class, call).mayBeDone());
  }

  @Test
  void anAnswerThatDoesNotSayWhatWasAskedIsNone() throws Exception {
    PostdateClient empty = answered(200, "{}");
    assertMayBeDone(() -> empty.schedule(message(1)));
    assertMayBeDone(() -> empty.cancel("a"));
    assertMayBeDone(() -> empty.cancelWhere(new JobFilter().label("b")));
    assertMayBeDone(() -> empty.receive("a", "b", new ReceiveOptions()));
    assertMayBeDone(() -> empty.ack("a", "b", List.of("1")));
    assertFalse(assertThrows(NoAnswerException.class, () -> empty.get("a")).mayBeDone());

    PostdateClient other = answered(200, PENDING);
    assertMayBeDone(() -> other.schedule(message(1)));
    assertMayBeDone(() -> other.schedule(message(1), "00-1-2-03"));
    assertMayBeDone(() -> other.put(message(1).scheduleId("b")));
    assertMayBeDone(() -> other.cancel("a"));
    assertMayBeDone(
        () -> answered(200, "{\"messages\": [null]}").receive("a", "b", new ReceiveOptions()));
    String result = "{\"results\": [{\"scheduleId\": \"a\", \"status\": \"PENDING\"}]}";
    assertMayBeDone(() -> answered(200, result).cancelAll(List.of("a")));
    assertMayBeDone(() -> answered(200, result).purge(List.of("b")));
    assertMayBeDone(() -> answered(200, result).scheduleAll(List.of(message(1).scheduleId("b"))));
    assertMayBeDone(
        () ->
            answered(200, "{\"results\": [{\"receipt\": \"2\", \"acked\": true}]}")
                .ack("a", "b", List.of("1")));
  }

  @Test
  void aPayloadMayBeNullOrHaveNulls() throws Exception {
    String message =
        "{\"scheduleId\": \"a\", \"bucket\": 1, \"channel\": \"inbox:a\", \"priority\": \"medium\","
            + " \"executionTime\": \"2027-01-31T09:30:00Z\", \"createdAt\": \"2027-01-31T09:30:00Z\","
            + " \"version\": \"1\", \"contentType\": \"application/json\", \"payload\": null,"
            + " \"headers\": {}, \"attempts\": 0, \"status\": \"PENDING\"}";
    assertNull(answered(200, message).get("a").getPayload());
    PostdateClient client =
        answered(
            200,
            "{\"messages\": [{\"receipt\": \"1\", \"deliveries\": 1, \"payload\": [null,"
                + " {\"a\": [null]}]}]}");
    assertEquals(
        "[null, {a=[null]}]",
        client.receive("a", "b", new ReceiveOptions()).get(0).getPayload().toString());
  }

  @Test
  void resultsOfASharedRequestThatMakeNoSenseAreNoAnswer() throws Exception {
    CountDownLatch all = new CountDownLatch(1);
    PostdateAsyncClient client =
        new PostdateAsyncClient(
            configOf(
                    (request, body) -> {
                      all.await();
                      return new Reply(200, "{\"results\": [null, {\"error\": {}}]}");
                    })
                .requests(1));
    List<CompletableFuture<Void>> calls =
        List.of("a", "b", "c").stream().map(client::cancel).toList();
    all.countDown();
    for (CompletableFuture<Void> call : calls) {
      ExecutionException failed = assertThrows(ExecutionException.class, call::get);
      assertTrue(assertInstanceOf(NoAnswerException.class, failed.getCause()).mayBeDone());
    }
  }

  @Test
  void anErrorOfScheduleHasTheIdThatTheMessageGot() throws Exception {
    BlockingQueue<String> ids = new LinkedBlockingQueue<>();
    PostdateClient client =
        new PostdateClient(
            configOf(
                    (request, body) -> {
                      ids.add(body.get("scheduleId").asText());
                      if (body.get("payload").asInt() == 1) {
                        throw new IOException("the connection ends");
                      }
                      return new Reply(400, "{}");
                    })
                .retryFor(Duration.ZERO));
    PostdateException lost =
        assertThrows(NoAnswerException.class, () -> client.schedule(message(1)));
    assertEquals(ids.take(), lost.scheduleId());
    lost = assertThrows(NoAnswerException.class, () -> client.schedule(message(1), "00-1-2-03"));
    assertEquals(ids.take(), lost.scheduleId());
    PostdateException refused =
        assertThrows(ProblemException.class, () -> client.schedule(message(2)));
    assertEquals(ids.take(), refused.scheduleId());
    Thread.currentThread().interrupt();
    PostdateException interrupted =
        assertThrows(NoAnswerException.class, () -> client.schedule(message(2).scheduleId("mine")));
    assertTrue(Thread.interrupted());
    assertEquals("mine", interrupted.scheduleId());
  }

  @Test
  void anEarlierTryThatWasLostIsNotForgotten() throws Exception {
    Queue<Integer> tries = new ConcurrentLinkedQueue<>();
    PostdateClient client =
        new PostdateClient(
            configOf(
                (request, body) -> {
                  tries.add(1);
                  switch (tries.size()) {
                    case 1:
                      throw new IOException("the connection ends");
                    case 2:
                      return new Reply(
                          503, "{\"type\": \"urn:postdate:problem:not-ready\", \"status\": 503}");
                    default:
                      return new Reply(400, "{}");
                  }
                }));
    assertMayBeDone(() -> client.schedule(message(1)));
    assertEquals(3, tries.size());
  }

  @Test
  void aJobAndAPurgeAreNotRepeatedOnceTheyMayBeDone() throws Exception {
    Queue<Integer> tries = new ConcurrentLinkedQueue<>();
    PostdateClient client =
        new PostdateClient(
            configOf(
                (request, body) -> {
                  tries.add(1);
                  throw new IOException("the connection ends");
                }));
    assertMayBeDone(() -> client.cancelWhere(new JobFilter().label("a")));
    assertMayBeDone(() -> client.redriveWhere(new JobFilter().label("a")));
    assertMayBeDone(() -> client.purgeWhere(new JobFilter().label("a")));
    assertMayBeDone(() -> client.purge(List.of("a")));
    assertEquals(4, tries.size());
  }

  @Test
  void aDelayIsSentAsADelay() throws Exception {
    BlockingQueue<JsonNode> bodies = new LinkedBlockingQueue<>();
    PostdateClient client =
        new PostdateClient(
            configOf(
                    (request, body) -> {
                      bodies.add(body);
                      return scheduled(body);
                    })
                .clock(Clock.fixed(Instant.EPOCH, ZoneOffset.UTC)));
    client.schedule(message(1).delay("PT15M"));
    JsonNode body = bodies.take();
    assertEquals("PT15M", body.get("delay").asText());
    assertFalse(body.has("executionTime"));
  }

  @Test
  void aCallerMayBlockAfterATimeOut() throws Exception {
    Config hangs =
        configOf(
                (request, body) -> {
                  new CountDownLatch(1).await();
                  return null;
                })
            .answerTimeout(Duration.ofMillis(500))
            .retryFor(Duration.ZERO);
    Queue<Integer> tries = new ConcurrentLinkedQueue<>();
    PostdateClient other =
        new PostdateClient(
            configOf(
                (request, body) -> {
                  tries.add(1);
                  return tries.size() == 1 ? new Reply(503, "{}") : scheduled(body);
                }));
    Schedule message = message(1).scheduleId("b");
    Scheduled scheduled =
        new PostdateAsyncClient(hangs)
            .schedule(message)
            .exceptionally(
                error -> other.schedule(message)) // waits for a timer before its second try
            .get(1, TimeUnit.MINUTES);
    assertEquals("b", scheduled.getScheduleId());
  }

  @Test
  void aWorkerGoesOnAfterAnOutage() throws Exception {
    BlockingQueue<JsonNode> acked = new LinkedBlockingQueue<>();
    Queue<Integer> asked = new ConcurrentLinkedQueue<>();
    Server inbox = inbox(acked);
    PostdateClient client =
        new PostdateClient(
            configOf(
                    (request, body) -> {
                      asked.add(1);
                      switch (asked.size()) {
                        case 1:
                          throw new IOException("the connection ends");
                        case 2:
                          return new Reply(500, "{}");
                        default:
                          return inbox.answer(request, body);
                      }
                    })
                .retryFor(Duration.ZERO));
    try (Worker worker = client.consume("a", "b", message -> {})) {
      acked.take();
      assertFalse(worker.ended().isDone());
    }
  }

  @Test
  void anErrorOfAHandlerEndsTheWorkerButNotWhatWasHandled() throws Exception {
    BlockingQueue<JsonNode> acked = new LinkedBlockingQueue<>();
    PostdateClient client = new PostdateClient(configOf(inbox(acked)));
    AssertionError error = new AssertionError("it is wrong");
    Handler handler =
        message -> {
          if (message.getReceipt().equals("2")) {
            throw error;
          }
        };
    try (Worker worker = client.consume("a", "b", handler)) {
      assertEquals(error, assertThrows(ExecutionException.class, worker.ended()::get).getCause());
    }
    assertEquals(Json.MAPPER.readTree("{\"receipts\": [\"1\"]}"), acked.take());
  }

  @Test
  void aWorkerBeginsNoMessageWhenMostOfTheVisibilityIsOver() throws Exception {
    BlockingQueue<JsonNode> acked = new LinkedBlockingQueue<>();
    PostdateClient client = new PostdateClient(configOf(inbox(acked)));
    Queue<String> handled = new ConcurrentLinkedQueue<>();
    Duration visibility = Duration.ofMillis(1200);
    Handler handler =
        message -> {
          handled.add(message.getReceipt());
          long until = System.nanoTime() + visibility.toNanos() / 4 * 3;
          while (System.nanoTime() <= until) {
            Thread.onSpinWait();
          }
        };
    ReceiveOptions options = new ReceiveOptions().visibility(visibility);
    try (Worker worker = client.consume("a", "b", options, handler)) {
      acked.take();
      worker.stop();
    }
    assertFalse(handled.contains("2"));
  }

  /** An inbox with two messages, that come again and again. */
  private static Server inbox(BlockingQueue<JsonNode> acked) {
    return (request, body) -> {
      if (!request.getRequestURI().getPath().endsWith("/ack")) {
        return new Reply(
            200,
            "{\"messages\": [{\"receipt\": \"1\", \"deliveries\": 1},"
                + " {\"receipt\": \"2\", \"deliveries\": 1}]}");
      }
      acked.add(body);
      List<String> results =
          StreamSupport.stream(body.get("receipts").spliterator(), false)
              .map(receipt -> "{\"receipt\": " + receipt + ", \"acked\": true}")
              .toList();
      return new Reply(200, "{\"results\": [" + String.join(",", results) + "]}");
    };
  }

  @Test
  void whatCannotBeAHeaderIsRefusedWithoutItsValue() {
    String key = "a-secret-key\n";
    for (Executable refused :
        List.<Executable>of(
            () -> new Config().apiKey(key),
            () -> new Config().tenant(key),
            () -> new Config().header("a", key),
            () -> new Config().header("a b", "c"),
            () -> new PostdateClient().schedule(message(1), key))) {
      IllegalArgumentException error = assertThrows(IllegalArgumentException.class, refused);
      assertFalse(error.getMessage().contains("a-secret-key"));
      assertNull(error.getCause());
    }
  }

  @Test
  void whatCannotBeSentIsRefused() {
    PostdateClient client = new PostdateClient(new Config().servers("127.0.0.1:1"));
    for (Object payload : List.of("a\ud800b", new byte[] {1})) {
      assertThrows(IllegalArgumentException.class, () -> client.schedule(message(payload)));
    }
    assertThrows(IllegalArgumentException.class, () -> client.put(message(1)));
    assertThrows(IllegalArgumentException.class, () -> client.cancel(null));
    assertThrows(IllegalArgumentException.class, () -> new Config().requests(0));
  }
}
