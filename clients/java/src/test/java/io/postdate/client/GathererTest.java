package io.postdate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.postdate.client.Gatherer.Item;
import io.postdate.client.Gatherer.Outcome;
import io.postdate.client.model.Problem;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class GathererTest {
  /** Calls that a test answers. */
  private static final class Calls implements Gatherer.Calls<String> {
    final CompletableFuture<String> first = new CompletableFuture<>();
    final List<Integer> sizes = new ArrayList<>();
    final CompletableFuture<CompletableFuture<List<Outcome<String>>>> shared =
        new CompletableFuture<>();
    ProblemException refusal;

    @Override
    public synchronized CompletableFuture<String> alone(Item item) {
      sizes.add(1);
      return first;
    }

    @Override
    public synchronized CompletableFuture<List<Outcome<String>>> together(List<Item> items) {
      sizes.add(items.size());
      if (refusal != null) {
        return CompletableFuture.failedFuture(refusal);
      }
      CompletableFuture<List<Outcome<String>>> request = new CompletableFuture<>();
      shared.complete(request);
      return request;
    }
  }

  private final Calls calls = new Calls();
  private final Gatherer<String> gatherer = new Gatherer<>(1, calls);

  /** Calls of which the first goes alone, and the others wait for it. */
  private List<CompletableFuture<String>> call(int count) {
    return IntStream.range(0, count)
        .mapToObj(n -> gatherer.call(new Item("id-" + n, "{}")))
        .toList();
  }

  @Test
  void aRequestThatAllCallersLeftEnds() throws Exception {
    List<CompletableFuture<String>> callers = call(3);
    calls.first.complete("done");
    CompletableFuture<List<Outcome<String>>> request = calls.shared.get();
    callers.get(1).cancel(true);
    assertFalse(request.isDone());
    callers.get(2).cancel(true);
    assertThrows(CancellationException.class, () -> request.get(1, TimeUnit.MINUTES));
  }

  @Test
  void aRefusalThatConcernsAllIsNotHalvedDownToEachItem() {
    calls.refusal =
        new ProblemException(new Problem().status(400L).detail("the tenant has no such name"));
    List<CompletableFuture<String>> callers = call(501);
    calls.first.complete("done");
    for (CompletableFuture<String> caller : callers.subList(1, 501)) {
      ExecutionException failed = assertThrows(ExecutionException.class, caller::get);
      assertEquals(calls.refusal, failed.getCause());
    }
    assertEquals(List.of(1, 500, 250, 250), calls.sizes);
  }
}
