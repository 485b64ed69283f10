package io.postdate.client;

import io.postdate.client.model.Change;
import io.postdate.client.model.InboxMessage;
import io.postdate.client.model.Message;
import io.postdate.client.model.PayloadEncoding;
import io.postdate.client.model.ReceivedMessage;
import io.postdate.client.model.Schedule;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/**
 * Payloads that are not a value of JSON, or are one of a class.
 *
 * <p>A payload is any object that Jackson can write. With a content type that is not JSON it is a
 * {@code String}; bytes that are not text go in base64, as {@link #set} writes them.
 */
public final class Payloads {
  private Payloads() {}

  /**
   * Gives a message bytes as its payload.
   *
   * @param bytes what the consumer gets
   * @param contentType such as application/octet-stream
   */
  public static Schedule set(Schedule message, byte[] bytes, String contentType) {
    return message
        .payload(Base64.getEncoder().encodeToString(bytes))
        .payloadEncoding(PayloadEncoding.BASE64)
        .contentType(contentType);
  }

  /**
   * Gives a change bytes as its payload.
   *
   * @param bytes what the consumer gets
   * @param contentType such as application/octet-stream
   */
  public static Change set(Change change, byte[] bytes, String contentType) {
    return change
        .payload(Base64.getEncoder().encodeToString(bytes))
        .payloadEncoding(PayloadEncoding.BASE64)
        .contentType(contentType);
  }

  /**
   * The payload of a message as bytes: those of a text, or those that came in base64.
   *
   * @return the bytes; of JSON, they may have other white space than what was scheduled
   */
  public static byte[] bytes(Message message) {
    return bytes(message.getPayload(), message.getPayloadEncoding(), message.getContentType());
  }

  /** Likewise, of a message that was read from an inbox. */
  public static byte[] bytes(InboxMessage message) {
    return bytes(message.getPayload(), message.getPayloadEncoding(), message.getContentType());
  }

  /** Likewise, of a message that was received. */
  public static byte[] bytes(ReceivedMessage message) {
    return bytes(message.getPayload(), message.getPayloadEncoding(), message.getContentType());
  }

  /**
   * A payload of JSON as an object of a class.
   *
   * @param payload what getPayload of a message returned
   */
  public static <T> T as(Object payload, Class<T> type) {
    return Json.MAPPER.convertValue(payload, type);
  }

  /** Refuses bytes that nobody would know for bytes. */
  static void check(Object payload) {
    if (payload instanceof byte[]) {
      throw new IllegalArgumentException(
          "a payload of bytes has a content type: give both with Payloads.set");
    }
  }

  private static byte[] bytes(Object payload, PayloadEncoding encoding, String contentType) {
    if (encoding == PayloadEncoding.BASE64) {
      return Base64.getDecoder().decode((String) payload);
    }
    boolean json = contentType.matches("(?i)application/(json|[^;]*\\+json)\\s*(;.*)?");
    String text = !json && payload instanceof String s ? s : Json.write(payload);
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
