package io.postdate.client.receivers;

/** The headers do not say what a message of Postdate says. */
public final class HeadersException extends RuntimeException {
  private static final long serialVersionUID = 1;

  HeadersException(String message) {
    super(message);
  }
}
