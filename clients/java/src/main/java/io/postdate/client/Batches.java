package io.postdate.client;

import com.fasterxml.jackson.core.JsonProcessingException;
import io.postdate.client.Gatherer.Item;
import io.postdate.client.Gatherer.Outcome;
import io.postdate.client.model.BatchResult;
import io.postdate.client.model.BatchResults;
import io.postdate.client.model.CancelResult;
import io.postdate.client.model.CancelResults;
import io.postdate.client.model.Cancelled;
import io.postdate.client.model.Problem;
import io.postdate.client.model.Scheduled;
import io.postdate.client.model.Status;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiPredicate;
import java.util.function.Function;
import java.util.stream.Collectors;

/** How concurrent schedules and cancels go, alone or together. */
final class Batches {
  private Batches() {}

  static Gatherer<Scheduled> schedules(Transport transport) {
    return new Gatherer<>(
        transport.config.requests,
        new Gatherer.Calls<>() {
          @Override
          public CompletableFuture<Scheduled> alone(Item item) {
            return transport.attempt(schedule(item), scheduled(item.scheduleId()));
          }

          @Override
          public CompletableFuture<List<Outcome<Scheduled>>> together(List<Item> items) {
            Call call = new Call("POST", "/v1/messages/batch", array(items));
            return transport.attempt(call, answer -> scheduled(answer, items));
          }
        });
  }

  static Gatherer<Void> cancels(Transport transport) {
    return new Gatherer<>(
        transport.config.requests,
        new Gatherer.Calls<>() {
          @Override
          public CompletableFuture<Void> alone(Item item) {
            Call call = new Call("DELETE", Query.message(item.scheduleId()), null);
            return transport.attempt(call, answer -> cancelled(answer, item));
          }

          @Override
          public CompletableFuture<List<Outcome<Void>>> together(List<Item> items) {
            String body = "{\"scheduleIds\":" + array(items) + "}";
            Call call = new Call("POST", "/v1/messages/cancel", body);
            return transport.attempt(call, answer -> cancelled(answer, items));
          }
        });
  }

  static Call schedule(Item item) {
    return new Call("POST", "/v1/messages", item.body());
  }

  /** Reads what became of one message, which was scheduled. */
  static Transport.Reader<Scheduled> scheduled(String scheduleId) {
    return answer -> {
      Scheduled scheduled = Json.read(answer.text(), Scheduled.class);
      check(scheduled.getScheduleId().equals(scheduleId), scheduleId);
      return scheduled;
    };
  }

  /** Reads what became of many messages, which were scheduled. */
  static List<BatchResult> scheduledAll(Answer answer, List<String> scheduleIds)
      throws JsonProcessingException {
    return all(
        Json.read(answer.text(), BatchResults.class).getResults(),
        scheduleIds,
        BatchResult::getError,
        (result, id) -> id.equals(result.getScheduleId()) && result.getStatus() != null);
  }

  /**
   * Reads what became of many messages.
   *
   * @param status what those have that were changed; null: it is not always the same
   */
  static List<CancelResult> changedAll(Answer answer, List<String> scheduleIds, Status status)
      throws JsonProcessingException {
    return all(
        Json.read(answer.text(), CancelResults.class).getResults(),
        scheduleIds,
        CancelResult::getError,
        (result, id) ->
            id.equals(result.getScheduleId())
                && result.getStatus() != null
                && (status == null || result.getStatus() == status));
  }

  /** Checks the results of an answer, which must say of each item what became of it, in order. */
  static <T> List<T> all(
      List<T> results,
      List<String> asked,
      Function<T, Problem> error,
      BiPredicate<T, String> done) {
    if (results.size() != asked.size()) {
      throw new IllegalStateException(
          "it has " + results.size() + " results for " + asked.size() + " items");
    }
    for (int n = 0; n < asked.size(); n++) {
      Problem problem = error.apply(results.get(n));
      boolean said =
          problem == null ? done.test(results.get(n), asked.get(n)) : problem.getStatus() != null;
      check(said, asked.get(n));
    }
    return results;
  }

  private static void check(boolean said, String of) {
    if (!said) {
      throw new IllegalStateException("it does not say what became of " + of);
    }
  }

  static String array(List<Item> items) {
    return items.stream().map(Item::body).collect(Collectors.joining(",", "[", "]"));
  }

  static List<String> ids(List<Item> items) {
    return items.stream().map(Item::scheduleId).toList();
  }

  private static List<Outcome<Scheduled>> scheduled(Answer answer, List<Item> items)
      throws JsonProcessingException {
    return scheduledAll(answer, ids(items)).stream()
        .map(result -> outcome(result.getError(), scheduled(result)))
        .toList();
  }

  private static Scheduled scheduled(BatchResult result) {
    return new Scheduled()
        .scheduleId(result.getScheduleId())
        .bucket(result.getBucket())
        .executionTime(result.getExecutionTime())
        .status(result.getStatus())
        .ending(result.getEnding());
  }

  private static List<Outcome<Void>> cancelled(Answer answer, List<Item> items)
      throws JsonProcessingException {
    return changedAll(answer, ids(items), Status.CANCELLED).stream()
        .map(result -> Batches.<Void>outcome(result.getError(), null))
        .toList();
  }

  private static Void cancelled(Answer answer, Item item) throws JsonProcessingException {
    Cancelled result = Json.read(answer.text(), Cancelled.class);
    check(
        result.getScheduleId().equals(item.scheduleId())
            && result.getStatus() == Cancelled.StatusEnum.CANCELLED,
        item.scheduleId());
    return null;
  }

  private static <R> Outcome<R> outcome(Problem problem, R result) {
    return problem == null
        ? new Outcome<>(result, null)
        : new Outcome<>(null, new ProblemException(problem));
  }
}
