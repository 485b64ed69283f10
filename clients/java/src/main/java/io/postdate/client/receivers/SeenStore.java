package io.postdate.client.receivers;

/**
 * Remembers which messages were handled. One that several processes share makes one of them know of
 * another's.
 */
public interface SeenStore {
  /**
   * Whether a message was handled.
   *
   * @return whether it was added
   */
  boolean has(String messageId);

  /** Remembers that a message was handled. */
  void add(String messageId);
}
