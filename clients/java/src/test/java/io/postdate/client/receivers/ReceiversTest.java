package io.postdate.client.receivers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

class ReceiversTest {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private static Stream<JsonNode> vectors(String kind) throws IOException {
    String file = System.getProperty("receivers");
    JsonNode all = MAPPER.readTree(Files.readString(Path.of(file))).get(kind);
    assertFalse(all.isEmpty());
    return StreamSupport.stream(all.spliterator(), false);
  }

  private static Map<String, String> headers(JsonNode vector) {
    Map<String, String> headers = new HashMap<>();
    vector.get("headers").properties().forEach(h -> headers.put(h.getKey(), h.getValue().asText()));
    return headers;
  }

  @TestFactory
  Stream<DynamicTest> webhooks() throws IOException {
    return vectors("webhooks")
        .map(v -> DynamicTest.dynamicTest(v.get("name").asText(), () -> webhook(v)));
  }

  private static void webhook(JsonNode vector) throws IOException {
    Clock clock = Clock.fixed(Instant.parse(vector.get("now").asText()), ZoneOffset.UTC);
    String[] secrets = MAPPER.convertValue(vector.get("secrets"), String[].class);
    byte[] body = vector.get("body").asText().getBytes(StandardCharsets.UTF_8);
    Webhooks webhooks = new Webhooks(clock, secrets);
    if (vector.get("valid").asBoolean()) {
      assertEquals("order-1", webhooks.verify(headers(vector), body));
    } else {
      assertThrows(WebhookException.class, () -> webhooks.verify(headers(vector), body));
    }
  }

  @TestFactory
  Stream<DynamicTest> deliveries() throws IOException {
    return vectors("headers")
        .map(v -> DynamicTest.dynamicTest(v.get("name").asText(), () -> delivery(v)));
  }

  private static void delivery(JsonNode vector) {
    String id = vector.path("messageId").asText(null);
    JsonNode want = vector.get("want");
    if (want.isNull()) {
      assertThrows(HeadersException.class, () -> Delivery.of(headers(vector), id));
      return;
    }
    Delivery got = Delivery.of(headers(vector), id);
    assertEquals(
        new Delivery(
            want.get("messageId").asText(),
            want.get("scheduleId").asText(),
            Instant.parse(want.get("executionTime").asText()),
            want.get("attempt").asInt(),
            want.get("possibleDuplicate").asBoolean(),
            want.path("traceparent").asText(null),
            want.path("tracestate").asText(null),
            failed(want.path("failed"))),
        got);
    assertEquals(got.failed(), Failed.of(headers(vector)));
  }

  private static Failed failed(JsonNode want) {
    return want.isMissingNode()
        ? null
        : new Failed(
            want.get("messageId").asText(),
            want.get("channel").asText(),
            want.get("reason").asText(),
            want.get("attempts").asInt(),
            Instant.parse(want.get("time").asText()),
            want.get("possibleDuplicate").asBoolean());
  }

  @Test
  void headersMayBeBytesListsNumbersAndBooleans() {
    Map<String, Object> headers =
        Map.of(
            "message-id",
            "a".getBytes(StandardCharsets.UTF_8),
            "Postdate-Schedule-Id",
            List.of("b"),
            "postdate-execution-time",
            "2027-01-31T09:30:00Z",
            "postdate-attempt",
            2,
            "postdate-possible-duplicate",
            true);
    Delivery delivery = Delivery.of(headers);
    assertEquals("a", delivery.messageId());
    assertEquals("b", delivery.scheduleId());
    assertEquals(2, delivery.attempt());
    assertTrue(delivery.possibleDuplicate());
  }

  @Test
  void secretsMustBeSecrets() {
    for (String secret : List.of("", "whsec_", "whsec_MDEy", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY=")) {
      assertThrows(IllegalArgumentException.class, () -> new Webhooks(secret));
    }
  }

  @Test
  void aSecretThatIsNotThereIsRefused() {
    assertThrows(IllegalArgumentException.class, () -> new Webhooks((String) null));
  }

  @Test
  void handlesOnce() throws InterruptedException {
    Dedupe dedupe = new Dedupe();
    AtomicInteger runs = new AtomicInteger();
    assertTrue(dedupe.once("a", runs::incrementAndGet));
    assertFalse(dedupe.once("a", runs::incrementAndGet));
    assertTrue(dedupe.once("b", runs::incrementAndGet));
    assertEquals(2, runs.get());
  }

  @Test
  void handlesAgainWhatFailed() throws InterruptedException {
    Dedupe dedupe = new Dedupe();
    assertThrows(
        IOException.class,
        () ->
            dedupe.once(
                "a",
                () -> {
                  throw new IOException("it fails");
                }));
    assertTrue(dedupe.once("a", () -> {}));
  }

  @Test
  void waitsForTheOtherThread() throws Exception {
    Dedupe dedupe = new Dedupe();
    CountDownLatch begun = new CountDownLatch(1);
    CountDownLatch goOn = new CountDownLatch(1);
    CompletableFuture<Boolean> first =
        CompletableFuture.supplyAsync(
            () -> {
              try {
                return dedupe.once(
                    "a",
                    () -> {
                      begun.countDown();
                      goOn.await();
                    });
              } catch (Exception e) {
                throw new IllegalStateException(e);
              }
            });
    begun.await();
    assertTrue(dedupe.once("b", goOn::countDown)); // another message does not wait
    assertFalse(dedupe.once("a", () -> {}));
    assertTrue(first.get());
  }

  @Test
  void forgetsTheOldest() {
    MemoryStore store = new MemoryStore(2);
    List.of("a", "b", "c").forEach(store::add);
    assertFalse(store.has("a"));
    assertTrue(store.has("b") && store.has("c"));
  }
}
