package io.postdate.client;

import io.postdate.client.model.Problem;
import io.postdate.client.model.ProblemType;
import java.time.Duration;
import java.util.Set;

/** The server's answer is an error. */
public final class ProblemException extends PostdateException {
  private static final long serialVersionUID = 1;

  private static final Set<Integer> PASSING = Set.of(408, 429, 502, 503, 504, 507);

  private static final Set<ProblemType> SURELY_NOT_DONE =
      Set.of(ProblemType.UNAVAILABLE, ProblemType.NOT_READY, ProblemType.FULL);

  /** The status code of HTTP. */
  private final int status;

  private final transient Problem problem;

  /** What kind of problem it is. */
  private final ProblemType type;

  /** Names the request. */
  private final String requestId;

  /** How long the server asks to wait. */
  private final Duration retryAfter;

  ProblemException(
      int status,
      Problem problem,
      String requestId,
      Duration retryAfter,
      String scheduleId,
      Throwable cause) {
    super(messageOf(status, problem), scheduleId, cause);
    this.status = status;
    this.problem = problem;
    this.type = problem.getType();
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }

  /** The problem of one item of many. */
  ProblemException(Problem problem) {
    this(problem.getStatus().intValue(), problem, null, Duration.ZERO, null, null);
  }

  /**
   * What kind of problem it is.
   *
   * @return null: the answer comes from a proxy, say, and not from Postdate
   */
  public ProblemType type() {
    return type;
  }

  /** The status code of HTTP. */
  public int status() {
    return status;
  }

  /**
   * Everything that the answer says: detail, pointer, messageStatus and so on.
   *
   * @return the problem; null if this exception was serialized
   */
  public Problem problem() {
    return problem;
  }

  /**
   * Names the request in the node's log.
   *
   * @return null: the server sent none
   */
  public String requestId() {
    return requestId;
  }

  /**
   * How long the server asks to wait.
   *
   * @return zero: it does not
   */
  public Duration retryAfter() {
    return retryAfter;
  }

  @Override
  public boolean mayBeDone() {
    return status >= 500 && (type == null || !SURELY_NOT_DONE.contains(type));
  }

  @Override
  ProblemException of(String scheduleId) {
    return new ProblemException(status, problem, requestId, retryAfter, scheduleId, this);
  }

  @Override
  boolean passing() {
    return PASSING.contains(status);
  }

  /** Whether this decides the outcome of a call even if an earlier try was lost. */
  boolean conclusive() {
    return type == ProblemType.NOT_FOUND
        || type == ProblemType.EXISTS
        || type == ProblemType.TOO_LATE;
  }

  private static String messageOf(int status, Problem problem) {
    if (problem.getDetail() != null) {
      return problem.getDetail();
    }
    return problem.getTitle() != null ? problem.getTitle() : "the server answered " + status;
  }
}
