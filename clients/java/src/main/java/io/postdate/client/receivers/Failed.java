package io.postdate.client.receivers;

import java.time.Instant;

/**
 * What is said of a message that could not be delivered.
 *
 * @param messageId the message's
 * @param channel where it went; of a URL, the scheme and host
 * @param reason why it could not be delivered
 * @param attempts how often that was tried
 * @param time when it failed
 * @param possibleDuplicate it may have arrived all the same
 */
public record Failed(
    String messageId,
    String channel,
    String reason,
    int attempts,
    Instant time,
    boolean possibleDuplicate) {}
