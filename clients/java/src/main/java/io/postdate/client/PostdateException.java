package io.postdate.client;

/** What a call fails with. */
public abstract sealed class PostdateException extends RuntimeException
    permits ProblemException, NoAnswerException {
  private static final long serialVersionUID = 1;

  /** The id of the message that was to be scheduled. */
  private final String scheduleId;

  PostdateException(String message, String scheduleId, Throwable cause) {
    super(message, cause);
    this.scheduleId = scheduleId;
  }

  /**
   * Of schedule, the id that the message has. With this id you can safely repeat the call, also
   * where the client made the id.
   *
   * @return null: another call failed
   */
  public String scheduleId() {
    return scheduleId;
  }

  /**
   * Whether a call that changes something may have taken effect all the same.
   *
   * @return false: surely nothing was done
   */
  public abstract boolean mayBeDone();

  /** The same exception with the stack of whoever waited for the call. */
  PostdateException here() {
    return of(scheduleId);
  }

  /** The same exception, of the schedule of this message. */
  abstract PostdateException of(String scheduleId);

  /** Whether the same call may succeed later or at another server. */
  abstract boolean passing();
}
