package io.postdate.client;

import io.postdate.client.model.Receive;
import java.time.Duration;

/** What to receive for a consumer of an inbox. */
public final class ReceiveOptions {
  Integer limit;
  Duration wait = Duration.ZERO;
  Duration visibility = Duration.ofSeconds(30);

  /** The defaults. */
  public ReceiveOptions() {}

  /**
   * How many messages at most. Default: 100; of {@code consume}: 10, because one that waits behind
   * slow ones is hidden from other workers.
   *
   * @param limit the number, up to 1,000
   */
  public ReceiveOptions limit(int limit) {
    this.limit = limit;
    return this;
  }

  /**
   * How long to wait for a message if there is none. Default: not at all. It is not for {@code
   * consume}, which waits for 5 s at a time, or for a quarter of the visibility if that is shorter.
   *
   * @param wait the time, up to 30 s
   */
  public ReceiveOptions waitFor(Duration wait) {
    this.wait = wait;
    return this;
  }

  /**
   * How long nobody else receives the messages. Choose it longer than it takes to handle all of
   * them. Default: 30 s.
   *
   * @param visibility the time, from 1 s to 12 h
   */
  public ReceiveOptions visibility(Duration visibility) {
    this.visibility = visibility;
    return this;
  }

  /** As the API has them. */
  Receive body() {
    return new Receive()
        .limit(limit == null ? null : Long.valueOf(limit))
        .wait(wait.toMillis() + "ms")
        .visibility(visibility.toMillis() + "ms");
  }
}
