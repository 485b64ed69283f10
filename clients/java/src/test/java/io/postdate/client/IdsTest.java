package io.postdate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;

import java.time.Clock;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.UUID;
import org.junit.jupiter.api.Test;

class IdsTest {
  @Test
  void hasTheFormOfVersion7() {
    Clock clock = Clock.fixed(Instant.ofEpochMilli(0x0123456789abL), ZoneOffset.UTC);
    String id = Ids.next(clock);
    UUID uuid = UUID.fromString(id);
    assertEquals("01234567-89ab-7", id.substring(0, 15));
    assertEquals(7, uuid.version());
    assertEquals(2, uuid.variant());
    assertNotEquals(id, Ids.next(clock));
  }
}
