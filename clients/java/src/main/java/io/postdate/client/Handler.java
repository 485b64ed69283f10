package io.postdate.client;

import io.postdate.client.model.ReceivedMessage;

/** Handles a message that a consumer received. */
@FunctionalInterface
public interface Handler {
  /**
   * Handles a message. Once it returns, the message is acknowledged.
   *
   * @throws Exception if the message is to come again
   */
  void handle(ReceivedMessage message) throws Exception;
}
