package io.postdate.client;

import com.fasterxml.jackson.databind.JsonNode;
import io.postdate.client.Gatherer.Item;
import io.postdate.client.model.AckResult;
import io.postdate.client.model.BatchResult;
import io.postdate.client.model.Caller;
import io.postdate.client.model.CancelResult;
import io.postdate.client.model.Change;
import io.postdate.client.model.ChannelChange;
import io.postdate.client.model.ChannelList;
import io.postdate.client.model.ChannelSettings;
import io.postdate.client.model.Cluster;
import io.postdate.client.model.Failures;
import io.postdate.client.model.Health;
import io.postdate.client.model.InboxPage;
import io.postdate.client.model.Job;
import io.postdate.client.model.JobFilter;
import io.postdate.client.model.Key;
import io.postdate.client.model.KeyWish;
import io.postdate.client.model.Message;
import io.postdate.client.model.MessagePage;
import io.postdate.client.model.NewKey;
import io.postdate.client.model.Occurrence;
import io.postdate.client.model.Preview;
import io.postdate.client.model.ReceivedMessage;
import io.postdate.client.model.Schedule;
import io.postdate.client.model.Scheduled;
import io.postdate.client.model.Stats;
import io.postdate.client.model.Task;
import io.postdate.client.model.TaskDefinition;
import io.postdate.client.model.Tenant;
import io.postdate.client.model.TenantChange;
import io.postdate.client.model.TimeUnit;
import io.postdate.client.model.UpcomingSlot;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/**
 * A client of a Postdate node or cluster. It is safe for use by several threads.
 *
 * <p>A call that fails throws a {@link ProblemException} or a {@link NoAnswerException}. Reads,
 * schedules, cancels, receives and acknowledgements are tried again until they are answered or
 * {@link Config#retryFor} is over; other calls only where surely nothing was done. Concurrent calls
 * of schedule share requests, and so do those of cancel. If the thread is interrupted, a call
 * throws a {@link NoAnswerException}, and the thread is still interrupted.
 */
public final class PostdateClient {
  private final PostdateAsyncClient async;

  /** A client with the defaults, and what the environment says. */
  public PostdateClient() {
    this(new Config());
  }

  /** A client. It does not connect yet. */
  public PostdateClient(Config config) {
    async = new PostdateAsyncClient(config);
  }

  /**
   * The same calls as futures.
   *
   * @return a client that shares requests with this one
   */
  public PostdateAsyncClient async() {
    return async;
  }

  /**
   * Schedules a message. One without a scheduleId gets one before the first try. The same
   * scheduleId with the same content again is answered as the first time, with other content by the
   * problem EXISTS.
   *
   * @return the answer, with its id and time
   */
  public Scheduled schedule(Schedule message) {
    Item named = async.named(message);
    return await(async.schedule(named), named.scheduleId());
  }

  /**
   * Schedules a message with a trace context. Such a call shares no request with others.
   *
   * @param traceparent of W3C, which goes with the message
   * @return the answer, with its id and time
   */
  public Scheduled schedule(Schedule message, String traceparent) {
    return schedule(message, traceparent, null);
  }

  /**
   * Schedules a message with a trace context. Such a call shares no request with others.
   *
   * @param traceparent of W3C, which goes with the message
   * @param tracestate what vendors add to it; null: nothing
   * @return the answer, with its id and time
   */
  public Scheduled schedule(Schedule message, String traceparent, String tracestate) {
    Item named = async.named(message);
    return await(async.schedule(named, traceparent, tracestate), named.scheduleId());
  }

  /**
   * Schedules up to 10,000 messages in one request. Each stands or falls alone.
   *
   * @return what became of each, in order: it has an error, or what schedule would answer
   */
  public List<BatchResult> scheduleAll(List<Schedule> messages) {
    return await(async.scheduleAll(messages));
  }

  /**
   * Creates the message with this scheduleId, or replaces it while it is PENDING.
   *
   * @param message the message, with its scheduleId
   */
  public Scheduled put(Schedule message) {
    return put(message, null);
  }

  /**
   * Replaces a message only if it is still as it was read.
   *
   * @param message the message, with its scheduleId
   * @param ifVersion the version that it must have: if it has another one, the problem is
   *     PRECONDITION_FAILED; null: any
   */
  public Scheduled put(Schedule message, String ifVersion) {
    return await(async.put(message, ifVersion));
  }

  /**
   * Changes a message while it is PENDING, or a series from its next occurrence on.
   *
   * @param change what changes; what it does not have stays as it is
   */
  public Scheduled patch(String scheduleId, Change change) {
    return patch(scheduleId, change, null);
  }

  /**
   * Changes a message only if it is still as it was read.
   *
   * @param ifVersion the version that it must have: if it has another one, the problem is
   *     PRECONDITION_FAILED; null: any
   */
  public Scheduled patch(String scheduleId, Change change, String ifVersion) {
    return await(async.patch(scheduleId, change, ifVersion));
  }

  /** Moves a message to another time. */
  public Scheduled move(String scheduleId, Instant executionTime) {
    return await(async.move(scheduleId, executionTime));
  }

  /** Pauses a series. No other occurrence begins until it is resumed. */
  public void pauseSeries(String scheduleId) {
    await(async.pauseSeries(scheduleId));
  }

  /** Lets a paused series go on with the first occurrence after now. */
  public void resumeSeries(String scheduleId) {
    await(async.resumeSeries(scheduleId));
  }

  /**
   * Begins an occurrence of a series out of turn. It is a message of its own.
   *
   * @return the answer, with the occurrence's id
   */
  public Scheduled trigger(String scheduleId) {
    return trigger(scheduleId, null);
  }

  /**
   * Begins an occurrence of a series only if that is still as it was read.
   *
   * @param ifVersion the version that it must have; null: any
   * @return the answer, with the occurrence's id
   */
  public Scheduled trigger(String scheduleId, String ifVersion) {
    return await(async.trigger(scheduleId, ifVersion));
  }

  /**
   * Cancels a message. If this returns, that is a guarantee: the message is never delivered. If
   * delivery may have begun, the problem is TOO_LATE.
   */
  public void cancel(String scheduleId) {
    await(async.cancel(scheduleId));
  }

  /**
   * Cancels up to 10,000 messages in one request. A result without an error is the same guarantee.
   *
   * @return what became of each, in order
   */
  public List<CancelResult> cancelAll(List<String> scheduleIds) {
    return await(async.cancelAll(scheduleIds));
  }

  /**
   * Tries up to 10,000 messages again that failed. Each is PENDING then, or its result has an
   * error.
   *
   * @return what became of each, in order
   */
  public List<CancelResult> redrive(List<String> scheduleIds) {
    return await(async.redrive(scheduleIds));
  }

  /**
   * Deletes up to 10,000 messages that failed. Each is gone then, or its result has an error.
   *
   * @return what became of each, in order
   */
  public List<CancelResult> purge(List<String> scheduleIds) {
    return await(async.purge(scheduleIds));
  }

  /**
   * Starts a job that cancels the pending messages that a filter selects. Each that counts as done
   * has the guarantee of cancel.
   *
   * @param filter which; it is not empty
   * @return the job's id
   */
  public String cancelWhere(JobFilter filter) {
    return await(async.cancelWhere(filter));
  }

  /**
   * Starts a job that tries the failed messages again that a filter selects.
   *
   * @return the job's id
   */
  public String redriveWhere(JobFilter filter) {
    return await(async.redriveWhere(filter));
  }

  /**
   * Starts a job that deletes the failed messages that a filter selects.
   *
   * @return the job's id
   */
  public String purgeWhere(JobFilter filter) {
    return await(async.purgeWhere(filter));
  }

  /** Says how far a job has come. */
  public Job job(String jobId) {
    return await(async.job(jobId));
  }

  /** Waits until a job is done. */
  public Job waitJob(String jobId) {
    return await(async.waitJob(jobId));
  }

  /** Reads a message. */
  public Message get(String scheduleId) {
    return await(async.get(scheduleId));
  }

  /**
   * Reads messages page by page, in the order of their execution times.
   *
   * @return the messages; each iteration reads them anew
   */
  public Iterable<Message> list(MessageFilter filter) {
    return () ->
        new Pages<>(
            cursor -> {
              MessagePage page = await(async.list(filter, cursor));
              return new Pages.Page<>(page.getMessages(), page.getNextCursor());
            });
  }

  /**
   * Returns when a rule recurs.
   *
   * @param preview the rule, and which occurrences are asked for: by default ten after now
   */
  public List<Occurrence> preview(Preview preview) {
    return await(async.preview(preview));
  }

  /**
   * Says how many messages are due when.
   *
   * @param from where the first slot begins; null: now
   * @param to where the last slot ends; null: an hour after that
   * @param step how long a slot is, of which there are at most 500; null: about a sixtieth of it
   * @param channel selects; null: any
   */
  public List<UpcomingSlot> upcoming(Instant from, Instant to, Duration step, String channel) {
    return await(async.upcoming(from, to, step, channel));
  }

  /**
   * Groups messages that failed by their channels and errors.
   *
   * @param channel selects; null: any
   * @param from selects those whose execution time is not before this; null: any
   * @param to selects those whose execution time is before this; null: any
   */
  public Failures failures(String channel, Instant from, Instant to) {
    return await(async.failures(channel, from, to));
  }

  /** Inserts, updates or deletes a task, which is a series in the words of a task scheduler. */
  public Task defineTask(TaskDefinition task) {
    return await(async.defineTask(task));
  }

  /**
   * Reads the tasks that are not deleted, by when they first begin.
   *
   * @param name selects; null: any
   * @param unit selects; null: any
   */
  public List<Task> tasks(String name, TimeUnit unit) {
    return await(async.tasks(name, unit));
  }

  /**
   * Reads messages of an inbox. It removes none: a reader keeps the page's nextCursor, and goes on
   * after that.
   */
  public InboxPage readInbox(String inbox, InboxRead read) {
    return await(async.readInbox(inbox, read));
  }

  /**
   * Receives messages of an inbox for a consumer. What is not acknowledged comes again after its
   * visibility.
   */
  public List<ReceivedMessage> receive(String inbox, String consumer, ReceiveOptions options) {
    return await(async.receive(inbox, consumer, options));
  }

  /**
   * Acknowledges up to 1,000 messages by their receipts. Each stands or falls alone.
   *
   * @return what became of each, in order
   */
  public List<AckResult> ack(String inbox, String consumer, List<String> receipts) {
    return await(async.ack(inbox, consumer, receipts));
  }

  /**
   * Receives messages of an inbox for a consumer, handles one after the other in a thread of its
   * own, and acknowledges them.
   *
   * @param handler handles a message; if it throws, the message comes again
   * @return the worker, which is at work until it is closed
   */
  public Worker consume(String inbox, String consumer, Handler handler) {
    return consume(inbox, consumer, new ReceiveOptions(), handler);
  }

  /**
   * Likewise, with options.
   *
   * @param options what to receive at a time
   * @param handler handles a message; if it throws, the message comes again
   * @return the worker, which is at work until it is closed
   */
  public Worker consume(String inbox, String consumer, ReceiveOptions options, Handler handler) {
    return async.worker(inbox, consumer, options, handler);
  }

  /** Lists the channels of the cluster, by name, and the nodes that did not answer. */
  public ChannelList channels() {
    return await(async.channels());
  }

  /** Pauses, resumes or limits a channel on all nodes. */
  public ChannelSettings changeChannel(ChannelChange change) {
    return await(async.changeChannel(change));
  }

  /** Says what this client's key or token is for. */
  public Caller whoAmI() {
    return await(async.whoAmI());
  }

  /** Lists the API keys of all tenants, the oldest first. */
  public List<Key> keys() {
    return await(async.keys());
  }

  /**
   * Makes an API key. If that may have been done, a key may be there whose text nobody has: revoke
   * it.
   *
   * @return the key with its text, which cannot be had again
   */
  public NewKey createKey(KeyWish wish) {
    return await(async.createKey(wish));
  }

  /** Revokes an API key. */
  public void revokeKey(String id) {
    await(async.revokeKey(id));
  }

  /**
   * Lists the tenants that have limits of their own, settings of channels, pending messages or
   * keys.
   *
   * @return the tenants, by name
   */
  public List<Tenant> tenants() {
    return await(async.tenants());
  }

  /** Changes a tenant's limits on all nodes. Null gives one back to the nodes' default. */
  public Tenant changeTenant(String tenant, TenantChange change) {
    return await(async.changeTenant(tenant, change));
  }

  /** Returns the cluster as one node sees it. */
  public Cluster cluster() {
    return await(async.cluster());
  }

  /** Returns what the cluster did in the last ten minutes. */
  public Stats stats() {
    return await(async.stats());
  }

  /** Asks once whether the process is alive. */
  public Health health() {
    return await(async.health());
  }

  /** Asks once whether the node can serve. If not, the problem is NOT_READY. */
  public Health ready() {
    return await(async.ready());
  }

  /** Reads the node's metrics, in the text format of Prometheus. */
  public String metrics() {
    return await(async.metrics());
  }

  /** Reads the API's OpenAPI document. */
  public JsonNode openApi() {
    return await(async.openApi());
  }

  /** Makes a call for which there is no method. */
  public Answer call(Call call) {
    return await(async.call(call));
  }

  private <T> T await(CompletableFuture<T> call) {
    return await(call, null);
  }

  private <T> T await(CompletableFuture<T> call, String scheduleId) {
    try {
      return call.get();
    } catch (InterruptedException e) {
      call.cancel(true);
      Thread.currentThread().interrupt();
      throw new NoAnswerException(async.server(), true, e).of(scheduleId);
    } catch (ExecutionException e) {
      if (e.getCause() instanceof PostdateException failed) {
        throw failed.here();
      }
      throw new IllegalStateException(e.getCause());
    }
  }
}
