package io.postdate.client.receivers;

/** A request is not what somebody who has the secret sent, or not a fresh one. Answer it 401. */
public final class WebhookException extends RuntimeException {
  private static final long serialVersionUID = 1;

  WebhookException(String message) {
    super(message);
  }
}
