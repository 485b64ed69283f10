package io.postdate.client.receivers;

import java.util.HashSet;
import java.util.Set;

/**
 * Handles each message once, as far as its store remembers.
 *
 * <p>An id is stored once its message is handled, so one that was not handled to the end is handled
 * when it comes again: nothing is lost, and after a crash, or in two processes at the same time, a
 * message may be handled twice.
 */
public final class Dedupe {
  /** Handles a message. */
  @FunctionalInterface
  public interface Work<E extends Exception> {
    /**
     * Handles the message.
     *
     * @throws E if the message was not handled to the end
     */
    void run() throws E;
  }

  private final SeenStore store;
  private final Set<String> inHand = new HashSet<>();

  /** Remembers the last messages, in memory. */
  public Dedupe() {
    this(new MemoryStore());
  }

  /**
   * Remembers messages in a store.
   *
   * @param store such as a table that all processes share
   */
  public Dedupe(SeenStore store) {
    this.store = store;
  }

  /**
   * Handles a message unless it was handled before. While another thread handles it, this one waits
   * for that.
   *
   * @param messageId the message's: {@link Delivery#messageId}
   * @return whether the message was handled now
   * @throws E if the work throws it
   * @throws InterruptedException if the thread is interrupted while it waits
   */
  public <E extends Exception> boolean once(String messageId, Work<E> work)
      throws E, InterruptedException {
    take(messageId);
    try {
      if (store.has(messageId)) {
        return false;
      }
      work.run();
      store.add(messageId);
      return true;
    } finally {
      give(messageId);
    }
  }

  private synchronized void take(String messageId) throws InterruptedException {
    while (!inHand.add(messageId)) {
      wait();
    }
  }

  private synchronized void give(String messageId) {
    inHand.remove(messageId);
    notifyAll();
  }
}
