package io.postdate.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.postdate.client.model.Change;
import io.postdate.client.model.ChannelChange;
import io.postdate.client.model.JobFilter;
import io.postdate.client.model.KeyWish;
import io.postdate.client.model.Preview;
import io.postdate.client.model.ReceivedMessage;
import io.postdate.client.model.Schedule;
import io.postdate.client.model.Status;
import io.postdate.client.model.TaskDefinition;
import io.postdate.client.model.TenantChange;
import io.postdate.client.model.TimeUnit;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Plays the scenario; clients/scenario/README.md says what its fields mean. */
final class ScenarioPlayer {
  private interface Step {
    /** Makes the call of a step. */
    Object play(PostdateClient client, JsonNode with) throws Exception;
  }

  private static final String HARNESS = System.getenv("POSTDATE_HARNESS");

  private final HttpClient http =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  private final Matching matching = new Matching();
  private final Map<String, Step> steps = new HashMap<>();
  private Clock clock = Clock.systemUTC();

  public static void main(String[] args) throws Exception {
    String text = Files.readString(Path.of(System.getenv("POSTDATE_SCENARIO")));
    ScenarioPlayer player = new ScenarioPlayer();
    for (JsonNode phase : Json.MAPPER.readTree(text).get("phases")) {
      int n = 0;
      for (JsonNode step : phase.get("steps")) {
        n++;
        String name = step.get("do").asText();
        System.err.println(phase.get("name").asText() + ", step " + n + ", " + name);
        FutureTask<Object> play =
            new FutureTask<>(
                () -> {
                  player.play(step);
                  return null;
                });
        Thread thread = new Thread(play);
        thread.setDaemon(true);
        thread.start();
        int seconds = name.equals("flood") ? 120 : 60;
        thread.join(seconds * 1000L);
        if (!play.isDone()) {
          throw new AssertionError("it does not end within " + seconds + " s");
        }
        play.get();
      }
    }
  }

  private ScenarioPlayer() {
    ofMessages();
    ofJobs();
    ofSeries();
    ofInboxes();
    ofOperations();
    steps.put("kill", (client, with) -> control("/kill", ""));
    steps.put(
        "start", (client, with) -> control("/start?after=" + with.path("after").asText(), ""));
    steps.put("clock", (client, with) -> done(() -> clock = clockOf(time(with, "offset"))));
    steps.put("flood", this::flood);
  }

  private void ofMessages() {
    steps.put("scheduleMessage", (client, with) -> client.schedule(as(with, Schedule.class)));
    steps.put(
        "scheduleBatch",
        (client, with) ->
            Map.of(
                "results",
                client.scheduleAll(List.of(as(with.get("messages"), Schedule[].class)))));
    steps.put(
        "putMessage",
        (client, with) -> client.put(as(with.get("message"), Schedule.class), ifVersion(with)));
    steps.put(
        "patchMessage",
        (client, with) ->
            client.patch(id(with), as(with.get("change"), Change.class), ifVersion(with)));
    steps.put("getMessage", (client, with) -> client.get(id(with)));
    steps.put("listMessages", (client, with) -> Map.of("messages", list(client, with)));
    steps.put("cancelMessage", (client, with) -> done(() -> client.cancel(id(with))));
    steps.put(
        "cancelMessages",
        (client, with) -> Map.of("results", client.cancelAll(texts(with, "scheduleIds"))));
  }

  private void ofJobs() {
    steps.put(
        "redriveMessages",
        (client, with) -> Map.of("results", client.redrive(texts(with, "scheduleIds"))));
    steps.put(
        "purgeMessages",
        (client, with) -> Map.of("results", client.purge(texts(with, "scheduleIds"))));
    steps.put("cancelWhere", (c, with) -> c.waitJob(c.cancelWhere(filter(with))));
    steps.put("redriveWhere", (c, with) -> c.waitJob(c.redriveWhere(filter(with))));
    steps.put("purgeWhere", (c, with) -> c.waitJob(c.purgeWhere(filter(with))));
    steps.put("getJob", (client, with) -> client.job(text(with, "id")));
  }

  private static JobFilter filter(JsonNode with) {
    return as(with.get("filter"), JobFilter.class);
  }

  private void ofSeries() {
    steps.put("triggerMessage", (client, with) -> client.trigger(id(with), ifVersion(with)));
    steps.put("pauseSeries", (client, with) -> done(() -> client.pauseSeries(id(with))));
    steps.put("resumeSeries", (client, with) -> done(() -> client.resumeSeries(id(with))));
    steps.put(
        "previewRecurrence",
        (client, with) -> Map.of("occurrences", client.preview(as(with, Preview.class))));
    steps.put(
        "getUpcoming",
        (client, with) -> {
          Instant from = as(with.get("from"), Instant.class);
          Instant to = as(with.get("to"), Instant.class);
          return Map.of(
              "slots", client.upcoming(from, to, time(with, "step"), text(with, "channel")));
        });
    steps.put(
        "getFailures",
        (client, with) -> {
          Instant from = as(with.get("from"), Instant.class);
          Instant to = as(with.get("to"), Instant.class);
          return client.failures(text(with, "channel"), from, to);
        });
    steps.put("defineTask", (client, with) -> client.defineTask(as(with, TaskDefinition.class)));
    steps.put(
        "listTasks",
        (client, with) -> {
          TimeUnit unit = as(with.get("unit"), TimeUnit.class);
          return Map.of("tasks", client.tasks(text(with, "name"), unit));
        });
  }

  private void ofInboxes() {
    steps.put(
        "readInbox",
        (client, with) -> {
          InboxRead read = new InboxRead().after(text(with, "after")).waitFor(time(with, "wait"));
          return client.readInbox(text(with, "inbox"), read);
        });
    steps.put(
        "receiveMessages",
        (client, with) ->
            Map.of(
                "messages",
                client.receive(text(with, "inbox"), text(with, "consumer"), options(with))));
    steps.put(
        "acknowledgeMessages",
        (client, with) ->
            Map.of(
                "results",
                client.ack(text(with, "inbox"), text(with, "consumer"), texts(with, "receipts"))));
    steps.put("consume", this::consume);
  }

  private void ofOperations() {
    steps.put("listChannels", (client, with) -> client.channels());
    steps.put(
        "changeChannel", (client, with) -> client.changeChannel(as(with, ChannelChange.class)));
    steps.put("getCluster", (client, with) -> client.cluster());
    steps.put("getStats", (client, with) -> client.stats());
    steps.put("whoAmI", (client, with) -> client.whoAmI());
    steps.put("listKeys", (client, with) -> Map.of("keys", client.keys()));
    steps.put("createKey", (client, with) -> client.createKey(as(with, KeyWish.class)));
    steps.put("revokeKey", (client, with) -> done(() -> client.revokeKey(text(with, "id"))));
    steps.put("listTenants", (client, with) -> Map.of("tenants", client.tenants()));
    steps.put(
        "changeTenant",
        (client, with) ->
            client.changeTenant(text(with, "tenant"), as(with.get("change"), TenantChange.class)));
    steps.put("getHealth", (client, with) -> client.health());
    steps.put("getReady", (client, with) -> client.ready());
    steps.put("getMetrics", (client, with) -> Map.of("text", client.metrics()));
    steps.put("getOpenAPI", (client, with) -> client.openApi());
    steps.put(
        "call",
        (client, with) -> {
          Map<String, String> headers = new HashMap<>();
          with.path("headers")
              .properties()
              .forEach(h -> headers.put(h.getKey(), h.getValue().asText()));
          Call call = new Call(text(with, "method"), text(with, "path"), text(with, "body"));
          call = new Call(call.method(), call.path(), call.body(), headers, false, Duration.ZERO);
          return Map.of("status", client.call(call).status());
        });
  }

  private void play(JsonNode step) throws Exception {
    Step call = steps.get(step.get("do").asText());
    if (call == null) {
      throw new AssertionError("the player does not know this step");
    }
    PostdateClient client = new PostdateClient(config(step));
    JsonNode answer;
    String met = "";
    try {
      JsonNode with =
          step.has("with") ? matching.fill(step.get("with")) : Json.MAPPER.createObjectNode();
      answer = Json.MAPPER.valueToTree(call.play(client, with));
    } catch (PostdateException e) {
      met = problem(e);
      if (!met.equals(step.path("problem").asText())) {
        throw e;
      }
      if (step.has("mayBeDone") && e.mayBeDone() != step.get("mayBeDone").asBoolean()) {
        throw new AssertionError("mayBeDone is " + e.mayBeDone(), e);
      }
      answer = Json.MAPPER.createObjectNode();
      if (e instanceof ProblemException failed) {
        ObjectNode problem = Json.MAPPER.valueToTree(failed.problem());
        answer = problem.put("requestId", failed.requestId());
      }
    }
    if (!met.equals(step.path("problem").asText())) {
      throw new AssertionError("there is no problem, want " + step.get("problem"));
    }
    if (step.has("want")) {
      String miss = Matching.mismatch(matching.fill(step.get("want")), answer);
      if (!miss.isEmpty()) {
        throw new AssertionError(miss + ", in " + answer);
      }
    }
    for (Map.Entry<String, JsonNode> save : step.path("save").properties()) {
      matching.save(save.getKey(), save.getValue().asText(), answer);
    }
  }

  private Config config(JsonNode step) throws Exception {
    Config config = new Config().http(http).clock(clock);
    if (step.has("fault")) {
      control("/fault", step.get("fault").toString());
      config.servers(HARNESS + "/node");
    }
    if (step.has("key")) {
      config.apiKey(matching.fill(step.get("key")).asText());
    }
    if (!step.path("retry").asBoolean(true)) {
      config.retryFor(Duration.ZERO);
    }
    if (step.has("timeout")) {
      config.answerTimeout(time(step, "timeout"));
    }
    return config;
  }

  private static String problem(PostdateException e) {
    return e instanceof ProblemException problem
        ? problem.type().getValue().replace("urn:postdate:problem:", "")
        : "no-answer";
  }

  private Object consume(PostdateClient client, JsonNode with) throws Exception {
    List<ReceivedMessage> messages = Collections.synchronizedList(new ArrayList<>());
    CompletableFuture<Void> enough = new CompletableFuture<>();
    int until = with.get("until").asInt();
    boolean failFirst = with.path("failFirst").asBoolean();
    Handler handler =
        message -> {
          messages.add(message);
          if (messages.size() == until) {
            enough.complete(null);
          }
          if (messages.size() == 1 && with.has("slowFirst")) {
            Thread.sleep(time(with, "slowFirst").toMillis());
          }
          if (messages.size() == 1 && failFirst) {
            throw new IllegalStateException("the scenario lets it fail");
          }
        };
    try (Worker worker =
        client.consume(text(with, "inbox"), text(with, "consumer"), options(with), handler)) {
      CompletableFuture.anyOf(enough, worker.ended()).get();
    }
    return Map.of("messages", messages);
  }

  private Object flood(PostdateClient client, JsonNode with) throws Exception {
    new Flood(client, with).run();
    return null;
  }

  /** Many messages that are scheduled and consumed while the node dies. */
  private final class Flood {
    private final PostdateClient client;
    private final JsonNode with;
    private final String inbox;
    private final String consumer;
    private final int count;
    private final Set<String> failedOnce = ConcurrentHashMap.newKeySet();
    private final Set<String> handled = ConcurrentHashMap.newKeySet();
    private final Set<String> unmarked = ConcurrentHashMap.newKeySet();
    private final CompletableFuture<Object> all = new CompletableFuture<>();
    private final AtomicInteger next = new AtomicInteger();
    private final AtomicInteger scheduled = new AtomicInteger();

    Flood(PostdateClient client, JsonNode with) {
      this.client = client;
      this.with = with;
      inbox = text(with, "inbox");
      consumer = text(with, "consumer");
      count = with.get("count").asInt();
    }

    void run() throws Exception {
      List<Worker> workers = new ArrayList<>();
      for (int n = 0; n < with.get("workers").asInt(); n++) {
        Worker worker = client.consume(inbox, consumer, options(with), this::handle);
        worker.ended().whenComplete((nothing, error) -> failed(error));
        workers.add(worker);
      }
      for (int n = 0; n < with.get("callers").asInt(); n++) {
        caller().whenComplete((nothing, error) -> failed(error));
      }
      all.get();
      workers.forEach(Worker::close);
      ReceiveOptions rest = options(with).waitFor(time(with, "visibility"));
      List<ReceivedMessage> more = client.receive(inbox, consumer, rest);
      if (!more.isEmpty()) {
        throw new AssertionError(more.get(0).getScheduleId() + " comes again once all are handled");
      }
    }

    private void failed(Throwable error) {
      if (error != null) {
        all.completeExceptionally(error);
      }
    }

    private void received(ReceivedMessage message) {
      String id = message.getScheduleId();
      if (!id.equals("flood-" + message.getPayload())) {
        failed(new AssertionError(id + " has the payload " + message.getPayload()));
      }
      if (message.getPossibleDuplicate() == null && !unmarked.add(id)) {
        failed(new AssertionError(id + " came twice without a mark"));
      }
    }

    private void handle(ReceivedMessage message) {
      received(message);
      String id = message.getScheduleId();
      if (id.endsWith("00") && failedOnce.add(id)) {
        throw new IllegalStateException("the flood lets it fail");
      }
      handled.add(id);
      if (handled.size() == count) {
        all.complete(null);
      }
    }

    /** Schedules one message after the other. */
    private CompletableFuture<Void> caller() {
      int n = next.getAndIncrement();
      if (n >= count) {
        return CompletableFuture.completedFuture(null);
      }
      String id = "flood-" + n;
      Schedule message =
          new Schedule().scheduleId(id).channel("inbox:" + inbox).delay("1ms").payload(n);
      return client
          .async()
          .schedule(message)
          .thenComposeAsync(
              answer -> {
                if (!id.equals(answer.getScheduleId())) {
                  throw new AssertionError(id + " is answered with " + answer.getScheduleId());
                }
                if (scheduled.incrementAndGet() == count / 4) {
                  ReceiveOptions some = options(with).waitFor(Duration.ofSeconds(5));
                  client.receive(inbox, consumer, some).forEach(this::received);
                  control("/kill", "");
                  control("/start?after=200ms", "");
                }
                return caller();
              });
    }
  }

  /** Asks the harness for something. */
  private Object control(String path, String body) {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(HARNESS + path))
            .POST(BodyPublishers.ofString(body))
            .build();
    HttpResponse<String> response = http.sendAsync(request, BodyHandlers.ofString()).join();
    if (response.statusCode() != 200) {
      throw new AssertionError("the harness answers " + response.body());
    }
    return null;
  }

  private static List<Object> list(PostdateClient client, JsonNode with) {
    MessageFilter filter = new MessageFilter().channel(text(with, "channel"));
    filter.status(as(with.get("status"), Status.class));
    filter.label(text(with, "label")).idPrefix(text(with, "idPrefix"));
    if (with.has("recurring")) {
      filter.recurring(with.get("recurring").asBoolean());
    }
    if (with.has("from")) {
      filter.from(OffsetDateTime.parse(text(with, "from")).toInstant());
    }
    if (with.has("to")) {
      filter.to(OffsetDateTime.parse(text(with, "to")).toInstant());
    }
    if (with.has("pageSize")) {
      filter.pageSize(with.get("pageSize").asInt());
    }
    List<Object> messages = new ArrayList<>();
    client.list(filter).forEach(messages::add);
    return messages;
  }

  private static ReceiveOptions options(JsonNode with) {
    ReceiveOptions options = new ReceiveOptions();
    if (with.has("limit")) {
      options.limit(with.get("limit").asInt());
    }
    if (with.has("wait")) {
      options.waitFor(time(with, "wait"));
    }
    if (with.has("visibility")) {
      options.visibility(time(with, "visibility"));
    }
    return options;
  }

  private static Clock clockOf(Duration offset) {
    return Clock.offset(Clock.systemUTC(), offset);
  }

  private static Object done(Runnable call) {
    call.run();
    return null;
  }

  private static <T> T as(JsonNode value, Class<T> type) {
    return Json.MAPPER.convertValue(value, type);
  }

  private static String id(JsonNode with) {
    return text(with, "scheduleId");
  }

  private static String ifVersion(JsonNode with) {
    return text(with, "ifVersion");
  }

  private static String text(JsonNode with, String name) {
    return with.path(name).asText(null);
  }

  private static List<String> texts(JsonNode with, String name) {
    return List.of(as(with.get(name), String[].class));
  }

  private static Duration time(JsonNode with, String name) {
    return duration(text(with, name));
  }

  static Duration duration(String text) {
    Matcher parts = Pattern.compile("(-?\\d+)(ms|s|m|h)").matcher(text);
    if (!parts.matches()) {
      throw new AssertionError("this is no duration: " + text);
    }
    long value = Long.parseLong(parts.group(1));
    return switch (parts.group(2)) {
      case "ms" -> Duration.ofMillis(value);
      case "s" -> Duration.ofSeconds(value);
      case "m" -> Duration.ofMinutes(value);
      default -> Duration.ofHours(value);
    };
  }
}
