package io.postdate.client;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Lets concurrent calls share requests. At most so many senders are at work: each takes what waits,
 * sends it as one request, and looks again. There is no timer.
 */
final class Gatherer<R> {
  /** One call. Its body is its JSON in a shared request. */
  record Item(String scheduleId, String body) {}

  /** What became of an item: one of the two is null. */
  record Outcome<R>(R result, ProblemException problem) {}

  /** How calls are made, with one try. */
  interface Calls<R> {
    CompletableFuture<R> alone(Item item);

    CompletableFuture<List<Outcome<R>>> together(List<Item> items);
  }

  private record Waiting<R>(Item item, CompletableFuture<R> result) {}

  private static final int ITEMS_MAX = 500;

  /** A batch has at most 64 MiB, and a character at most three bytes. */
  private static final int CHARACTERS_MAX = 16 << 20;

  private final Calls<R> calls;
  private final int sendersMax;
  private final Queue<Waiting<R>> waiting = new ArrayDeque<>();
  private int senders;

  Gatherer(int sendersMax, Calls<R> calls) {
    this.calls = calls;
    this.sendersMax = sendersMax;
  }

  /** Makes a call, alone or with others. Whoever completes the future leaves it. */
  CompletableFuture<R> call(Item item) {
    CompletableFuture<R> result = new CompletableFuture<>();
    boolean begin;
    synchronized (this) {
      waiting.add(new Waiting<>(item, result));
      begin = senders < sendersMax;
      senders += begin ? 1 : 0;
    }
    if (begin) {
      send();
    }
    return result;
  }

  private void send() {
    List<Waiting<R>> taken = take();
    if (!taken.isEmpty()) {
      deliver(taken)
          .thenCompose(refusal -> halve(taken, refusal))
          .whenCompleteAsync((nothing, error) -> send());
    }
  }

  /** Takes as much of what waits as fits into a request. If that is nothing, the sender ends. */
  private synchronized List<Waiting<R>> take() {
    List<Waiting<R>> taken = new ArrayList<>();
    int characters = 0;
    for (Waiting<R> next; (next = waiting.peek()) != null; waiting.remove()) {
      if (next.result.isDone()) {
        continue; // its caller has left
      }
      characters += next.item.body().length() + 1;
      if (taken.size() == ITEMS_MAX || !taken.isEmpty() && characters > CHARACTERS_MAX) {
        break;
      }
      taken.add(next);
    }
    senders -= taken.isEmpty() ? 1 : 0;
    return taken;
  }

  /**
   * Makes one request and gives each caller its answer, or returns why a shared one was refused.
   */
  private CompletableFuture<ProblemException> deliver(List<Waiting<R>> items) {
    try {
      return items.size() == 1 ? alone(items.get(0)) : together(items);
    } catch (RuntimeException e) {
      items.forEach(item -> item.result.completeExceptionally(e));
      return CompletableFuture.completedFuture(null);
    }
  }

  private CompletableFuture<ProblemException> alone(Waiting<R> waiting) {
    CompletableFuture<R> request = calls.alone(waiting.item);
    waiting.result.whenComplete((value, error) -> request.cancel(true));
    return request.handle(
        (value, error) -> {
          if (error == null) {
            waiting.result.complete(value);
          } else {
            waiting.result.completeExceptionally(error);
          }
          return null;
        });
  }

  private CompletableFuture<ProblemException> together(List<Waiting<R>> items) {
    CompletableFuture<List<Outcome<R>>> request =
        calls.together(items.stream().map(Waiting::item).toList());
    AtomicInteger callers = new AtomicInteger(items.size());
    for (Waiting<R> item : items) {
      item.result.whenComplete(
          (value, error) -> {
            if (callers.decrementAndGet() == 0) {
              request.cancel(true);
            }
          });
    }
    return request.handle(
        (outcomes, error) -> {
          ProblemException refusal = refusal(error);
          for (int n = 0; n < items.size() && refusal == null; n++) {
            CompletableFuture<R> result = items.get(n).result;
            Throwable failed = error != null ? error : outcomes.get(n).problem();
            if (failed != null) {
              result.completeExceptionally(failed);
            } else {
              result.complete(outcomes.get(n).result());
            }
          }
          return refusal;
        });
  }

  /** Makes two requests of one that was refused, which keeps one item's fault from the others. */
  private CompletableFuture<Void> halve(List<Waiting<R>> items, ProblemException refusal) {
    if (refusal == null) {
      return CompletableFuture.completedFuture(null);
    }
    int half = items.size() / 2;
    List<Waiting<R>> first = items.subList(0, half);
    List<Waiting<R>> second = items.subList(half, items.size());
    return deliver(first)
        .thenCompose(
            one ->
                deliver(second)
                    .thenCompose(
                        other -> {
                          if (isOfAll(one, other)) {
                            items.forEach(item -> item.result.completeExceptionally(refusal));
                            return CompletableFuture.<Void>completedFuture(null);
                          }
                          return halve(first, one).thenCompose(nothing -> halve(second, other));
                        }));
  }

  /** Whether both halves are refused alike, and not because of their size: so would be the rest. */
  private static boolean isOfAll(ProblemException one, ProblemException other) {
    return one != null
        && other != null
        && one.status() == 400
        && other.status() == 400
        && one.problem().equals(other.problem());
  }

  /**
   * Why the server rejected a request because of one item, or of their number; null: it did not.
   */
  private static ProblemException refusal(Throwable error) {
    Throwable why = error instanceof CompletionException ? error.getCause() : error;
    return why instanceof ProblemException problem
            && (problem.status() == 400 || problem.status() == 413)
        ? problem
        : null;
  }
}
