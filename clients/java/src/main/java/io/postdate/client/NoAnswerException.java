package io.postdate.client;

import java.net.ConnectException;

/** There was no answer, or none that can be read. The cause says why. */
public final class NoAnswerException extends PostdateException {
  private static final long serialVersionUID = 1;

  /** The server that was asked last. */
  private final String server;

  /** Whether the call may have taken effect. */
  private final boolean mayBeDone;

  /** Whether an answer came that makes no sense. */
  private final boolean garbled;

  private NoAnswerException(
      String server, boolean mayBeDone, boolean garbled, String scheduleId, Throwable cause) {
    super(messageOf(server, mayBeDone, cause), scheduleId, cause);
    this.server = server;
    this.mayBeDone = mayBeDone;
    this.garbled = garbled;
  }

  NoAnswerException(String server, boolean mayBeDone, Throwable cause) {
    this(server, mayBeDone, false, null, cause);
  }

  /** An answer came that makes no sense. To try again does not help. */
  static NoAnswerException garbled(String server, boolean mayBeDone, Throwable why) {
    String text = "the answer is not what a Postdate server says: " + why.getMessage();
    return new NoAnswerException(
        server, mayBeDone, true, null, new IllegalStateException(text, why));
  }

  /** The server that was asked last. */
  public String server() {
    return server;
  }

  @Override
  public boolean mayBeDone() {
    return mayBeDone;
  }

  @Override
  NoAnswerException of(String scheduleId) {
    NoAnswerException same =
        new NoAnswerException(server, mayBeDone, garbled, scheduleId, getCause());
    same.addSuppressed(this);
    return same;
  }

  @Override
  boolean passing() {
    return !garbled;
  }

  private static String messageOf(String server, boolean mayBeDone, Throwable cause) {
    String why = cause.getMessage();
    if (why == null) { // Java says nothing of a refused connection
      why = cause instanceof ConnectException ? "no connection" : cause.getClass().getSimpleName();
    }
    return "no answer from "
        + server
        + " ("
        + why
        + "): "
        + (mayBeDone
            ? "the call may have been done or not; repeat a schedule or a cancel with the same"
                + " scheduleId, which is safe, and look at the message before you repeat anything"
                + " else"
            : "nothing was done; see that a Postdate node serves there, and repeat the call");
  }
}
