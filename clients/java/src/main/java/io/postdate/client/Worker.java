package io.postdate.client;

import io.postdate.client.model.AckResult;
import io.postdate.client.model.ReceivedMessage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;

/**
 * Receives messages of an inbox for a consumer, in a thread of its own, and handles one after the
 * other.
 *
 * <p>It acknowledges those for which the handler returned, at the end of a batch and after each
 * message that takes more than a second; the others come again after their visibility, here or at
 * another worker. After three quarters of the visibility it begins no other message of a batch, so
 * that there is time to acknowledge. A handler that takes longer than the visibility may see its
 * message again at another worker. What comes again, and why, is in the log of this class.
 */
public final class Worker implements AutoCloseable {
  /**
   * A receive that nobody waits for any more may hold up messages, so it waits less than it may.
   */
  private static final Duration WAIT = Duration.ofSeconds(5);

  private static final int LIMIT = 10;

  /** Between two receives of which the first failed, although it was tried for a while. */
  private static final long PAUSE_MS = 500;

  /** How long the acknowledgement of what was handled may wait for the rest of a batch. */
  private static final long ACK_AFTER_NANOS = Duration.ofSeconds(1).toNanos();

  private static final System.Logger LOG = System.getLogger(Worker.class.getName());

  /** Messages, and when they were asked for: they are hidden from then on, or from later on. */
  record Batch(List<ReceivedMessage> messages, long askedAt) {}

  private final PostdateAsyncClient client;
  private final String inbox;
  private final String consumer;
  private final ReceiveOptions options;
  private final Handler handler;
  private final Thread thread;
  private final CompletableFuture<Void> ended = new CompletableFuture<>();
  private final CompletableFuture<Void> stopped = new CompletableFuture<>();

  Worker(
      PostdateAsyncClient client,
      String inbox,
      String consumer,
      ReceiveOptions given,
      Handler handler) {
    this.client = client;
    this.inbox = inbox;
    this.consumer = consumer;
    this.handler = handler;
    Duration quarter = given.visibility.dividedBy(4);
    options =
        new ReceiveOptions()
            .limit(given.limit == null ? LIMIT : given.limit)
            .visibility(given.visibility)
            .waitFor(quarter.compareTo(WAIT) < 0 ? quarter : WAIT);
    thread = new Thread(this::run, "postdate-" + inbox + "-" + consumer);
    thread.setDaemon(true);
  }

  Worker start() {
    thread.start();
    return this;
  }

  /**
   * Completes when the worker has ended: after {@link #stop}, or with the problem of a call that
   * was refused, or with a handler's {@link Error}. The worker does not end while no node answers.
   */
  public CompletableFuture<Void> ended() {
    return ended.copy();
  }

  /** Lets the worker end once the message in hand is handled. A handler may call this. */
  public void stop() {
    stopped.complete(null);
  }

  /** Stops, and waits until the message in hand is handled and acknowledged. */
  @Override
  public void close() {
    stop();
    if (Thread.currentThread() != thread) {
      ended.handle((nothing, error) -> nothing).join();
    }
  }

  private void run() {
    try {
      while (!stopped.isDone()) {
        try {
          receive();
        } catch (CompletionException e) {
          if (!isOutage(e.getCause())) {
            throw e;
          }
          LOG.log(System.Logger.Level.WARNING, about("the worker tries again"), e.getCause());
          stopped.copy().completeOnTimeout(null, PAUSE_MS, TimeUnit.MILLISECONDS).join();
        }
      }
      ended.complete(null);
    } catch (RuntimeException | Error e) {
      Throwable why = e instanceof CompletionException ? e.getCause() : e;
      LOG.log(System.Logger.Level.ERROR, about("the worker ends"), why);
      ended.completeExceptionally(why);
    }
  }

  private void receive() {
    CompletableFuture<Batch> receive = client.receiveBatch(inbox, consumer, options);
    CompletableFuture.anyOf(stopped, receive).join();
    if (receive.isDone()) {
      handleAll(receive.join());
    } else {
      receive.cancel(true);
    }
  }

  /** Whether a call may succeed once the nodes are well again. */
  private static boolean isOutage(Throwable why) {
    return why instanceof NoAnswerException
        || why instanceof ProblemException problem && problem.status() >= 500;
  }

  /** Handles one batch, and acknowledges it. */
  private void handleAll(Batch batch) {
    List<ReceivedMessage> handled = new ArrayList<>();
    long acked = System.nanoTime();
    long allowed = options.visibility.toNanos() / 4 * 3;
    for (ReceivedMessage message : batch.messages()) {
      if (System.nanoTime() - batch.askedAt() > allowed) {
        LOG.log(
            System.Logger.Level.WARNING,
            about(
                "messages come again: there was no time to handle them; choose a longer visibility"
                    + " or a smaller limit"));
        break;
      }
      if (stopped.isDone()) {
        break;
      }
      try {
        handler.handle(message);
        handled.add(message);
      } catch (Exception e) {
        comesAgain(message, e);
      } catch (Error e) { // it ends the worker, but not what was handled before
        ack(handled);
        throw e;
      }
      if (System.nanoTime() - acked > ACK_AFTER_NANOS) {
        ack(handled);
        acked = System.nanoTime();
      }
    }
    ack(handled);
  }

  private void ack(List<ReceivedMessage> handled) {
    if (handled.isEmpty()) {
      return;
    }
    List<String> receipts = handled.stream().map(ReceivedMessage::getReceipt).toList();
    List<AckResult> results = client.ack(inbox, consumer, receipts).join();
    for (int n = 0; n < results.size(); n++) {
      if (results.get(n).getError() != null) {
        comesAgain(handled.get(n), new ProblemException(results.get(n).getError()));
      }
    }
    handled.clear();
  }

  private void comesAgain(ReceivedMessage message, Exception why) {
    String text = "the message " + message.getScheduleId() + " comes again";
    LOG.log(System.Logger.Level.WARNING, about(text), why);
  }

  private String about(String text) {
    return text + " (inbox " + inbox + ", consumer " + consumer + ")";
  }
}
