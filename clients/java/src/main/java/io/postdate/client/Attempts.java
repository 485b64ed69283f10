package io.postdate.client;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Repeats what makes one try, as long as that may help and is safe.
 *
 * <p>The pause before all servers are tried again doubles from the least to the longest. It is
 * shortened by up to a half at random, so that callers do not come back at the same time.
 */
final class Attempts<T> {
  private static final long PAUSE_LEAST_MS = 100;
  private static final long PAUSE_LONGEST_MS = 2000;

  private final Transport transport;
  private final boolean repeatable;
  private final String scheduleId;
  private final Supplier<CompletableFuture<T>> attempt;
  private final CompletableFuture<T> result = new CompletableFuture<>();
  private final long begun = System.nanoTime(); // a clock that nobody sets
  private boolean lost; // a try that may have been done
  private int tries;
  private long longestMs = PAUSE_LEAST_MS;

  private Attempts(
      Transport transport,
      boolean repeatable,
      String scheduleId,
      Supplier<CompletableFuture<T>> attempt) {
    this.transport = transport;
    this.repeatable = repeatable;
    this.scheduleId = scheduleId;
    this.attempt = attempt;
  }

  /**
   * Makes a call of several tries. Whoever completes the future ends it.
   *
   * @param scheduleId of schedule, the message's: an error has it; null: another call
   */
  static <T> CompletableFuture<T> of(
      Transport transport,
      boolean repeatable,
      String scheduleId,
      Supplier<CompletableFuture<T>> attempt) {
    Attempts<T> attempts = new Attempts<>(transport, repeatable, scheduleId, attempt);
    attempts.next();
    return attempts.result;
  }

  private void next() {
    if (result.isDone()) {
      return;
    }
    CompletableFuture<T> one;
    try {
      one = attempt.get();
    } catch (RuntimeException e) {
      result.completeExceptionally(e);
      return;
    }
    one.whenComplete(this::ended);
    result.whenComplete((value, error) -> one.cancel(true));
  }

  private void ended(T value, Throwable error) {
    Throwable why = error instanceof CompletionException ? error.getCause() : error;
    if (why == null) {
      result.complete(value);
    } else if (!(why instanceof PostdateException failed)) {
      result.completeExceptionally(why);
    } else if (!failed.passing()) {
      boolean decided = failed instanceof ProblemException problem && problem.conclusive();
      result.completeExceptionally(since(lost && !decided, failed).of(scheduleId));
    } else {
      lost |= failed.mayBeDone();
      again(failed);
    }
  }

  private void again(PostdateException failed) {
    long pauseMs = 0; // before the next server
    if (++tries % transport.config.servers.size() == 0) {
      Duration asked =
          failed instanceof ProblemException problem ? problem.retryAfter() : Duration.ZERO;
      pauseMs = longestMs - ThreadLocalRandom.current().nextLong(longestMs / 2);
      pauseMs = Math.max(pauseMs, asked.toMillis());
      longestMs = Math.min(2 * longestMs, PAUSE_LONGEST_MS);
    }
    long passedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begun);
    if (lost && !repeatable || passedMs + pauseMs > transport.config.retryFor.toMillis()) {
      result.completeExceptionally(since(lost, failed).of(scheduleId));
      return;
    }
    later(pauseMs, this::next);
  }

  static void later(long ms, Runnable what) {
    CompletableFuture.delayedExecutor(ms, TimeUnit.MILLISECONDS).execute(what);
  }

  /** If an earlier try was lost, the call's outcome is unknown, whatever the last one says. */
  private PostdateException since(boolean lost, PostdateException failed) {
    if (!lost || failed.mayBeDone()) {
      return failed;
    }
    String text = "an earlier try was lost; the last one: " + failed.getMessage();
    return new NoAnswerException(transport.server(), true, new IllegalStateException(text, failed));
  }
}
