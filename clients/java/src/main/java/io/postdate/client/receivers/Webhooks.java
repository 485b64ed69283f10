package io.postdate.client.receivers;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Clock;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Verifies the signatures of webhooks, as Standard Webhooks has them. */
public final class Webhooks {
  private static final String PREFIX = "whsec_";
  private static final String ALGORITHM = "HmacSHA256";
  private static final Duration TOLERANCE = Duration.ofMinutes(5);

  private final List<SecretKeySpec> keys;
  private final Clock clock;

  /**
   * Verifies with secrets, of which one is enough, so that you can replace one.
   *
   * @param secrets whsec_ and base64
   */
  public Webhooks(String... secrets) {
    this(Clock.systemUTC(), secrets);
  }

  Webhooks(Clock clock, String... secrets) {
    this.clock = clock;
    keys = Arrays.stream(secrets).map(Webhooks::key).toList();
  }

  /**
   * Verifies a request.
   *
   * @param headers of the request, by name, in capitals or not
   * @param body of the request, before anything parsed it
   * @return the webhook-id, which is signed and the same for each attempt: drop repetitions by it
   * @throws WebhookException if nobody who has a secret has just sent it
   */
  public String verify(Map<String, ?> headers, byte[] body) {
    Headers all = new Headers(headers);
    String id = all.get("webhook-id");
    String timestamp = all.get("webhook-timestamp");
    String signatures = all.get("webhook-signature");
    if (id == null || timestamp == null || signatures == null) {
      throw new WebhookException("the request is not signed");
    }
    if (!timestamp.matches("\\d{1,12}")
        || Math.abs(Long.parseLong(timestamp) * 1000 - clock.millis()) > TOLERANCE.toMillis()) {
      throw new WebhookException(
          "the request is too old, or a clock is wrong: compare this machine's with the node's");
    }
    byte[] begin = (id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8);
    for (SecretKeySpec key : keys) {
      byte[] signature = ("v1," + sign(key, begin, body)).getBytes(StandardCharsets.UTF_8);
      for (String given : signatures.split(" ")) {
        if (MessageDigest.isEqual(signature, given.getBytes(StandardCharsets.UTF_8))) {
          return id;
        }
      }
    }
    throw new WebhookException("no signature is by a secret that is known here");
  }

  private static String sign(SecretKeySpec key, byte[] begin, byte[] body) {
    try {
      Mac mac = Mac.getInstance(ALGORITHM);
      mac.init(key);
      mac.update(begin);
      return Base64.getEncoder().encodeToString(mac.doFinal(body));
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException("every Java has " + ALGORITHM, e);
    }
  }

  private static SecretKeySpec key(String secret) {
    byte[] key = {};
    if (secret != null && secret.startsWith(PREFIX)) {
      key = Base64.getDecoder().decode(secret.substring(PREFIX.length()));
    }
    if (key.length < 16) {
      throw new IllegalArgumentException("a secret is whsec_ and the base64 of at least 16 bytes");
    }
    return new SecretKeySpec(key, ALGORITHM);
  }
}
