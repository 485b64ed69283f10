package io.postdate.client.receivers;

import java.util.LinkedHashSet;
import java.util.Set;

/** Remembers the last messages, in memory. */
public final class MemoryStore implements SeenStore {
  private final Set<String> ids = new LinkedHashSet<>();
  private final int max;

  /** Remembers the last 100,000 messages. */
  public MemoryStore() {
    this(100_000);
  }

  /** Remembers so many messages. */
  public MemoryStore(int max) {
    this.max = max;
  }

  @Override
  public synchronized boolean has(String messageId) {
    return ids.contains(messageId);
  }

  @Override
  public synchronized void add(String messageId) {
    ids.add(messageId);
    if (ids.size() > max) {
      ids.remove(ids.iterator().next());
    }
  }
}
