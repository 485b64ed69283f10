package io.postdate.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.postdate.client.Gatherer.Item;
import io.postdate.client.model.AckResult;
import io.postdate.client.model.AckResults;
import io.postdate.client.model.Acknowledge;
import io.postdate.client.model.BatchResult;
import io.postdate.client.model.Caller;
import io.postdate.client.model.Cancel;
import io.postdate.client.model.CancelResult;
import io.postdate.client.model.Change;
import io.postdate.client.model.Channel;
import io.postdate.client.model.ChannelChange;
import io.postdate.client.model.ChannelList;
import io.postdate.client.model.ChannelSettings;
import io.postdate.client.model.Cluster;
import io.postdate.client.model.Failures;
import io.postdate.client.model.Health;
import io.postdate.client.model.InboxPage;
import io.postdate.client.model.Job;
import io.postdate.client.model.JobFilter;
import io.postdate.client.model.JobStarted;
import io.postdate.client.model.Key;
import io.postdate.client.model.KeyList;
import io.postdate.client.model.KeyWish;
import io.postdate.client.model.Message;
import io.postdate.client.model.MessagePage;
import io.postdate.client.model.NewKey;
import io.postdate.client.model.Occurrence;
import io.postdate.client.model.Occurrences;
import io.postdate.client.model.Preview;
import io.postdate.client.model.Received;
import io.postdate.client.model.ReceivedMessage;
import io.postdate.client.model.RevokedKey;
import io.postdate.client.model.Schedule;
import io.postdate.client.model.Scheduled;
import io.postdate.client.model.Stats;
import io.postdate.client.model.Status;
import io.postdate.client.model.Task;
import io.postdate.client.model.TaskDefinition;
import io.postdate.client.model.Tenant;
import io.postdate.client.model.TenantChange;
import io.postdate.client.model.TenantList;
import io.postdate.client.model.TimeUnit;
import io.postdate.client.model.Upcoming;
import io.postdate.client.model.UpcomingSlot;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * The calls of the API as futures. {@link PostdateClient} says what each does.
 *
 * <p>A future fails with a {@link PostdateException}. One that is cancelled or times out ends its
 * call: nothing is tried again. A call that was sent by then may be done all the same. Only tasks
 * and channels, which read several pages, read them to the end.
 */
public final class PostdateAsyncClient {
  /** The pauses between two looks at a job: at first short, for those that end soon. */
  private static final long JOB_PAUSE_LEAST_MS = 50;

  private static final long JOB_PAUSE_LONGEST_MS = 1000;

  private final Transport transport;
  private final Gatherer<Scheduled> schedules;
  private final Gatherer<Void> cancels;

  /** A client with the defaults, and what the environment says. */
  public PostdateAsyncClient() {
    this(new Config());
  }

  /** A client. It does not connect yet. */
  public PostdateAsyncClient(Config config) {
    transport = new Transport(config);
    schedules = Batches.schedules(transport);
    cancels = Batches.cancels(transport);
  }

  /** The server that the next call tries first. */
  public String server() {
    return transport.server();
  }

  /** Schedules a message. */
  public CompletableFuture<Scheduled> schedule(Schedule message) {
    return schedule(named(message));
  }

  CompletableFuture<Scheduled> schedule(Item message) {
    return Attempts.of(transport, true, message.scheduleId(), () -> schedules.call(message));
  }

  /**
   * Schedules a message with a trace context. It shares no request with others.
   *
   * @param traceparent of W3C, which goes with the message
   */
  public CompletableFuture<Scheduled> schedule(Schedule message, String traceparent) {
    return schedule(message, traceparent, null);
  }

  /**
   * Schedules a message with a trace context. It shares no request with others.
   *
   * @param traceparent of W3C, which goes with the message
   * @param tracestate what vendors add to it; null: nothing
   */
  public CompletableFuture<Scheduled> schedule(
      Schedule message, String traceparent, String tracestate) {
    return schedule(named(message), traceparent, tracestate);
  }

  CompletableFuture<Scheduled> schedule(Item message, String traceparent, String tracestate) {
    Call parent = Batches.schedule(message).header("traceparent", traceparent);
    Call call = tracestate == null ? parent : parent.header("tracestate", tracestate);
    String id = message.scheduleId();
    return Attempts.of(transport, true, id, () -> transport.attempt(call, Batches.scheduled(id)));
  }

  /** Schedules up to 10,000 messages in one request. */
  public CompletableFuture<List<BatchResult>> scheduleAll(List<Schedule> messages) {
    List<Item> named = messages.stream().map(this::named).toList();
    return call(
        new Call("POST", "/v1/messages/batch", Batches.array(named)).twice(),
        answer -> Batches.scheduledAll(answer, Batches.ids(named)));
  }

  /**
   * Creates or replaces a message.
   *
   * @param message the message, with its scheduleId
   * @param ifVersion the version that it must have; null: any
   */
  public CompletableFuture<Scheduled> put(Schedule message, String ifVersion) {
    Payloads.check(message.getPayload());
    Call call = new Call("PUT", Query.message(message.getScheduleId()), Json.write(message));
    return call(call.ifVersion(ifVersion), Batches.scheduled(message.getScheduleId()));
  }

  /**
   * Changes a message.
   *
   * @param ifVersion the version that it must have; null: any
   */
  public CompletableFuture<Scheduled> patch(String scheduleId, Change change, String ifVersion) {
    Payloads.check(change.getPayload());
    Call call = new Call("PATCH", Query.message(scheduleId), Json.write(change));
    return call(call.ifVersion(ifVersion), Batches.scheduled(scheduleId));
  }

  /** Moves a message to another time. */
  public CompletableFuture<Scheduled> move(String scheduleId, Instant executionTime) {
    return patch(scheduleId, new Change().executionTime(executionTime), null);
  }

  /** Pauses a series. */
  public CompletableFuture<Scheduled> pauseSeries(String scheduleId) {
    return patch(scheduleId, new Change().paused(true), null);
  }

  /** Lets a paused series go on. */
  public CompletableFuture<Scheduled> resumeSeries(String scheduleId) {
    return patch(scheduleId, new Change().paused(false), null);
  }

  /**
   * Begins an occurrence of a series out of turn.
   *
   * @param ifVersion the version that it must have; null: any
   * @return the answer, with the occurrence's id
   */
  public CompletableFuture<Scheduled> trigger(String scheduleId, String ifVersion) {
    Call call = new Call("POST", Query.message(scheduleId) + "/trigger", null);
    return call(call.ifVersion(ifVersion), Json.as(Scheduled.class));
  }

  /**
   * Cancels a message.
   *
   * @return its success is the guarantee
   */
  public CompletableFuture<Void> cancel(String scheduleId) {
    Query.message(scheduleId); // refuses what cannot be one
    Item item = new Item(scheduleId, Json.write(scheduleId));
    return Attempts.of(transport, true, null, () -> cancels.call(item));
  }

  /** Cancels up to 10,000 messages in one request. */
  public CompletableFuture<List<CancelResult>> cancelAll(List<String> scheduleIds) {
    return many("/v1/messages/cancel", scheduleIds, true, Status.CANCELLED);
  }

  /** Tries up to 10,000 messages again that failed. */
  public CompletableFuture<List<CancelResult>> redrive(List<String> scheduleIds) {
    return many("/v1/messages/redrive", scheduleIds, true, null);
  }

  /** Deletes up to 10,000 messages that failed. */
  public CompletableFuture<List<CancelResult>> purge(List<String> scheduleIds) {
    return many("/v1/messages/purge", scheduleIds, false, null);
  }

  private CompletableFuture<List<CancelResult>> many(
      String path, List<String> scheduleIds, boolean repeatable, Status status) {
    String body = Json.write(new Cancel().scheduleIds(scheduleIds));
    Call call = new Call("POST", path, body);
    return call(
        repeatable ? call.twice() : call,
        answer -> Batches.changedAll(answer, scheduleIds, status));
  }

  /**
   * Starts a job that cancels pending messages.
   *
   * @return the job's id
   */
  public CompletableFuture<String> cancelWhere(JobFilter filter) {
    return startJob("/v1/messages/cancel", filter);
  }

  /**
   * Starts a job that tries failed messages again.
   *
   * @return the job's id
   */
  public CompletableFuture<String> redriveWhere(JobFilter filter) {
    return startJob("/v1/messages/redrive", filter);
  }

  /**
   * Starts a job that deletes failed messages.
   *
   * @return the job's id
   */
  public CompletableFuture<String> purgeWhere(JobFilter filter) {
    return startJob("/v1/messages/purge", filter);
  }

  private CompletableFuture<String> startJob(String path, JobFilter filter) {
    return call(
        new Call("POST", path, Json.write(new Cancel().filter(filter))),
        answer -> Json.read(answer.text(), JobStarted.class).getJobId());
  }

  /** Says how far a job has come. */
  public CompletableFuture<Job> job(String jobId) {
    return get(Query.path("/v1/jobs/%s", jobId), Job.class);
  }

  /** Waits until a job is done. */
  public CompletableFuture<Job> waitJob(String jobId) {
    CompletableFuture<Job> ended = new CompletableFuture<>();
    look(jobId, JOB_PAUSE_LEAST_MS, ended);
    return ended;
  }

  private void look(String jobId, long pauseMs, CompletableFuture<Job> ended) {
    if (ended.isDone()) {
      return; // nobody waits any more
    }
    job(jobId)
        .whenComplete(
            (job, error) -> {
              if (error != null) {
                ended.completeExceptionally(error);
              } else if (job.getState() == Job.StateEnum.DONE) {
                ended.complete(job);
              } else {
                long next = Math.min(2 * pauseMs, JOB_PAUSE_LONGEST_MS);
                Attempts.later(pauseMs, () -> look(jobId, next, ended));
              }
            });
  }

  /** Reads a message. */
  public CompletableFuture<Message> get(String scheduleId) {
    return get(Query.message(scheduleId), Message.class);
  }

  /**
   * Reads a page of messages, in the order of their execution times.
   *
   * @param cursor the nextCursor of the page before; null: the first page
   * @return the page; without a nextCursor it is the last one
   */
  public CompletableFuture<MessagePage> list(MessageFilter filter, String cursor) {
    return get(filter.path(cursor), MessagePage.class);
  }

  /** Returns when a rule recurs. */
  public CompletableFuture<List<Occurrence>> preview(Preview preview) {
    return call(
        new Call("POST", "/v1/recurrences/preview", Json.write(preview)).twice(),
        answer -> Json.read(answer.text(), Occurrences.class).getOccurrences());
  }

  /**
   * Says how many messages are due when.
   *
   * @param from where the first slot begins; null: now
   * @param to where the last slot ends; null: an hour after that
   * @param step how long a slot is, of which there are at most 500; null: about a sixtieth of it
   * @param channel selects; null: any
   */
  public CompletableFuture<List<UpcomingSlot>> upcoming(
      Instant from, Instant to, Duration step, String channel) {
    Query query = new Query().set("from", from).set("to", to);
    String path = query.set("step", step).set("channel", channel).on("/v1/upcoming");
    return get(path, Upcoming.class).thenApply(Upcoming::getSlots);
  }

  /**
   * Groups messages that failed by their channels and errors.
   *
   * @param channel selects; null: any
   * @param from selects those whose execution time is not before this; null: any
   * @param to selects those whose execution time is before this; null: any
   */
  public CompletableFuture<Failures> failures(String channel, Instant from, Instant to) {
    Query query = new Query().set("channel", channel).set("from", from).set("to", to);
    return get(query.on("/v1/failures"), Failures.class);
  }

  /** Inserts, updates or deletes a task. */
  public CompletableFuture<Task> defineTask(TaskDefinition task) {
    return call(new Call("POST", "/schedulers", Json.write(task)), Json.as(Task.class));
  }

  /**
   * Reads the tasks that are not deleted.
   *
   * @param name selects; null: any
   * @param unit selects; null: any
   */
  public CompletableFuture<List<Task>> tasks(String name, TimeUnit unit) {
    String path = new Query().set("name", name).set("unit", unit).on("/schedulers");
    return tasks(path, List.of());
  }

  private CompletableFuture<List<Task>> tasks(String path, List<Task> before) {
    return call(
            new Call("GET", path, null),
            answer ->
                new Pages.Page<>(
                    Arrays.asList(Json.read(answer.text(), Task[].class)),
                    answer.headers().firstValue("Link").orElse(null)))
        .thenCompose(
            page -> {
              List<Task> tasks = join(before, page.items());
              return page.next() == null
                  ? CompletableFuture.completedFuture(tasks)
                  : tasks(page.next().replaceFirst("<(.*)>; rel=\"next\"", "$1"), tasks);
            });
  }

  /** Reads messages of an inbox. */
  public CompletableFuture<InboxPage> readInbox(String inbox, InboxRead read) {
    Call call = new Call("GET", read.path(inbox), null);
    return call(call.waiting(read.wait), Json.as(InboxPage.class));
  }

  /** Receives messages of an inbox for a consumer. */
  public CompletableFuture<List<ReceivedMessage>> receive(
      String inbox, String consumer, ReceiveOptions options) {
    return call(receiveCall(inbox, consumer, options), PostdateAsyncClient::messages);
  }

  CompletableFuture<Worker.Batch> receiveBatch(
      String inbox, String consumer, ReceiveOptions options) {
    return call(
        receiveCall(inbox, consumer, options),
        answer -> new Worker.Batch(messages(answer), answer.askedAt()));
  }

  private static Call receiveCall(String inbox, String consumer, ReceiveOptions options) {
    String path = Query.path("/v1/inbox/%s/consumers/%s/receive", inbox, consumer);
    return new Call("POST", path, Json.write(options.body())).twice().waiting(options.wait);
  }

  private static List<ReceivedMessage> messages(Answer answer) throws JsonProcessingException {
    return Json.read(answer.text(), Received.class).getMessages();
  }

  /** Acknowledges up to 1,000 messages. */
  public CompletableFuture<List<AckResult>> ack(
      String inbox, String consumer, List<String> receipts) {
    String path = Query.path("/v1/inbox/%s/consumers/%s/ack", inbox, consumer);
    String body = Json.write(new Acknowledge().receipts(receipts));
    return call(
        new Call("POST", path, body).twice(),
        answer ->
            Batches.all(
                Json.read(answer.text(), AckResults.class).getResults(),
                receipts,
                AckResult::getError,
                (result, receipt) -> receipt.equals(result.getReceipt())));
  }

  /**
   * Receives messages of an inbox for a consumer, and handles one after the other.
   *
   * @param handler handles a message; it is acknowledged when the future succeeds
   * @return the worker, which is at work
   */
  public Worker consume(
      String inbox,
      String consumer,
      ReceiveOptions options,
      Function<ReceivedMessage, ? extends CompletableFuture<?>> handler) {
    return worker(inbox, consumer, options, message -> handler.apply(message).join());
  }

  Worker worker(String inbox, String consumer, ReceiveOptions options, Handler handler) {
    return new Worker(this, inbox, consumer, options, handler).start();
  }

  /** Lists the channels of the cluster, by name, and the nodes that did not answer. */
  public CompletableFuture<ChannelList> channels() {
    return channels(null, List.of(), List.of());
  }

  private CompletableFuture<ChannelList> channels(
      String cursor, List<Channel> before, List<String> missingBefore) {
    return get(new Query().set("cursor", cursor).on("/v1/channels"), ChannelList.class)
        .thenCompose(
            page -> {
              List<Channel> channels = join(before, page.getChannels());
              List<String> missing =
                  join(missingBefore, page.getMissing()).stream().distinct().sorted().toList();
              return page.getNextCursor() == null
                  ? CompletableFuture.completedFuture(
                      new ChannelList().channels(channels).missing(missing))
                  : channels(page.getNextCursor(), channels, missing);
            });
  }

  /** Pauses, resumes or limits a channel on all nodes. */
  public CompletableFuture<ChannelSettings> changeChannel(ChannelChange change) {
    return call(
        new Call("PATCH", "/v1/channels", Json.write(change)), Json.as(ChannelSettings.class));
  }

  /** Says what this client's key or token is for. */
  public CompletableFuture<Caller> whoAmI() {
    return get("/v1/whoami", Caller.class);
  }

  /** Lists the API keys of all tenants. */
  public CompletableFuture<List<Key>> keys() {
    return call(
        new Call("GET", "/v1/keys", null),
        answer -> Json.read(answer.text(), KeyList.class).getKeys());
  }

  /** Makes an API key. */
  public CompletableFuture<NewKey> createKey(KeyWish wish) {
    return call(new Call("POST", "/v1/keys", Json.write(wish)), Json.as(NewKey.class));
  }

  /** Revokes an API key. */
  public CompletableFuture<RevokedKey> revokeKey(String id) {
    return call(new Call("DELETE", Query.path("/v1/keys/%s", id), null), Json.as(RevokedKey.class));
  }

  /** Lists the tenants. */
  public CompletableFuture<List<Tenant>> tenants() {
    return call(
        new Call("GET", "/v1/tenants", null),
        answer -> Json.read(answer.text(), TenantList.class).getTenants());
  }

  /** Changes a tenant's limits on all nodes. */
  public CompletableFuture<Tenant> changeTenant(String tenant, TenantChange change) {
    String path = Query.path("/v1/tenants/%s", tenant);
    return call(new Call("PATCH", path, Json.write(change)), Json.as(Tenant.class));
  }

  /** Returns the cluster as one node sees it. */
  public CompletableFuture<Cluster> cluster() {
    return get("/v1/cluster", Cluster.class);
  }

  /** Returns what the cluster did in the last ten minutes. */
  public CompletableFuture<Stats> stats() {
    return get("/v1/stats", Stats.class);
  }

  /** Asks once whether the process is alive. */
  public CompletableFuture<Health> health() {
    return transport.attempt(new Call("GET", "/healthz", null), Json.as(Health.class));
  }

  /** Asks once whether the node can serve. */
  public CompletableFuture<Health> ready() {
    return transport.attempt(new Call("GET", "/readyz", null), Json.as(Health.class));
  }

  /** Reads the node's metrics. */
  public CompletableFuture<String> metrics() {
    return call(new Call("GET", "/metrics", null), Answer::text);
  }

  /** Reads the API's OpenAPI document. */
  public CompletableFuture<JsonNode> openApi() {
    return get("/openapi.json", JsonNode.class);
  }

  /** Makes a call for which there is no method. */
  public CompletableFuture<Answer> call(Call call) {
    return call(call, answer -> answer);
  }

  private <T> CompletableFuture<T> get(String path, Class<T> type) {
    return call(new Call("GET", path, null), Json.as(type));
  }

  private <T> CompletableFuture<T> call(Call call, Transport.Reader<T> reader) {
    boolean repeatable = call.repeatable() || call.isGet();
    return Attempts.of(transport, repeatable, null, () -> transport.attempt(call, reader));
  }

  /** The message with an id, so that a second try is the same message. */
  Item named(Schedule message) {
    Payloads.check(message.getPayload());
    ObjectNode named = Json.MAPPER.valueToTree(message);
    if (!named.has("scheduleId")) {
      named.put("scheduleId", Ids.next(transport.config.clock));
    }
    return new Item(named.get("scheduleId").asText(), Json.write(named));
  }

  private static <T> List<T> join(List<T> before, List<T> after) {
    return before.isEmpty() ? after : Stream.concat(before.stream(), after.stream()).toList();
  }
}
