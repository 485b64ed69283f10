package io.postdate.client;

import java.security.SecureRandom;
import java.time.Clock;
import java.util.UUID;

/** Makes the ids of messages. */
final class Ids {
  private static final SecureRandom RANDOM = new SecureRandom();

  private Ids() {}

  /** A UUID of version 7 (RFC 9562). It is new even if the clock is wrong. */
  static String next(Clock clock) {
    long high = clock.millis() << 16 | 0x7000 | RANDOM.nextInt(0x1000);
    long low = RANDOM.nextLong() & 0x3fff_ffff_ffff_ffffL | 0x8000_0000_0000_0000L;
    return new UUID(high, low).toString();
  }
}
