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
import java.util.function.Supplier;
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
            return transport.attempt(schedule(item.body()), Json.as(Scheduled.class));
          }

          @Override
          public CompletableFuture<List<Outcome<Scheduled>>> together(List<Item> items) {
            Call call = new Call("POST", "/v1/messages/batch", array(items));
            return transport.attempt(call, answer -> scheduled(answer, items.size()));
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
            return transport.attempt(call, Batches::cancelled);
          }

          @Override
          public CompletableFuture<List<Outcome<Void>>> together(List<Item> items) {
            String body = "{\"scheduleIds\":" + array(items) + "}";
            Call call = new Call("POST", "/v1/messages/cancel", body);
            return transport.attempt(call, answer -> cancelledAll(answer, items.size()));
          }
        });
  }

  static Call schedule(String body) {
    return new Call("POST", "/v1/messages", body);
  }

  /** The results of an answer, which must be one for each item. */
  static <T> List<T> all(List<T> results, int items) {
    int found = results == null ? 0 : results.size();
    if (found != items) {
      throw new IllegalStateException("it has " + found + " results for " + items + " items");
    }
    return results;
  }

  private static String array(List<Item> items) {
    return items.stream().map(Item::body).collect(Collectors.joining(",", "[", "]"));
  }

  private static List<Outcome<Scheduled>> scheduled(Answer answer, int items)
      throws JsonProcessingException {
    List<BatchResult> results = Json.read(answer.text(), BatchResults.class).getResults();
    return all(results, items).stream()
        .map(result -> outcome(result.getError(), () -> scheduled(result)))
        .toList();
  }

  private static Scheduled scheduled(BatchResult result) {
    if (result.getStatus() == null) {
      throw new IllegalStateException("a result has neither a status nor an error");
    }
    return new Scheduled()
        .scheduleId(result.getScheduleId())
        .bucket(result.getBucket())
        .executionTime(result.getExecutionTime())
        .status(result.getStatus())
        .ending(result.getEnding());
  }

  private static List<Outcome<Void>> cancelledAll(Answer answer, int items)
      throws JsonProcessingException {
    List<CancelResult> results = Json.read(answer.text(), CancelResults.class).getResults();
    return all(results, items).stream()
        .map(
            result ->
                outcome(result.getError(), () -> cancelled(result.getStatus() == Status.CANCELLED)))
        .toList();
  }

  private static Void cancelled(Answer answer) throws JsonProcessingException {
    Cancelled result = Json.read(answer.text(), Cancelled.class);
    return cancelled(result.getStatus() == Cancelled.StatusEnum.CANCELLED);
  }

  private static Void cancelled(boolean is) {
    if (!is) {
      throw new IllegalStateException("it does not say CANCELLED of what was cancelled");
    }
    return null;
  }

  private static <R> Outcome<R> outcome(Problem problem, Supplier<R> success) {
    return problem == null
        ? new Outcome<>(success.get(), null)
        : new Outcome<>(null, new ProblemException(problem));
  }
}
