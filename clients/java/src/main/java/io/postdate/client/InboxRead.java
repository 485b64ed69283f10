package io.postdate.client;

import java.time.Duration;

/** What to read from an inbox. */
public final class InboxRead {
  private final Query query = new Query();
  Duration wait = Duration.ZERO;

  /** From the oldest message that is kept, without waiting for one. */
  public InboxRead() {}

  /**
   * Where to go on.
   *
   * @param cursor the nextCursor of an earlier page; null: from the oldest message that is kept
   */
  public InboxRead after(String cursor) {
    query.set("after", cursor);
    return this;
  }

  /**
   * How many messages at most. Default: 100.
   *
   * @param limit the number, up to 1,000
   */
  public InboxRead limit(int limit) {
    query.set("limit", limit);
    return this;
  }

  /**
   * How long to wait for a message if there is none. Default: not at all.
   *
   * @param wait the time, up to 30 s
   */
  public InboxRead waitFor(Duration wait) {
    this.wait = wait;
    query.set("wait", wait.toMillis() + "ms");
    return this;
  }

  String path(String inbox) {
    return query.on(Query.path("/v1/inbox/%s", inbox));
  }
}
