package io.postdate.client;

/** What a call fails with. */
public abstract sealed class PostdateException extends RuntimeException
    permits ProblemException, NoAnswerException {
  private static final long serialVersionUID = 1;

  PostdateException(String message, Throwable cause) {
    super(message, cause);
  }

  /**
   * Whether a call that changes something may have taken effect all the same.
   *
   * @return false: surely nothing was done
   */
  public abstract boolean mayBeDone();

  /** The same exception with the stack of whoever waited for the call. */
  abstract PostdateException here();

  /** Whether the same call may succeed later or at another server. */
  abstract boolean passing();
}
