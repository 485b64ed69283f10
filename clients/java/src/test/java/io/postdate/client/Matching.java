package io.postdate.client;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.format.DateTimeParseException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Variables of the scenario, and what answers are compared with. */
final class Matching {
  private static final Pattern TIMES = Pattern.compile("\\{x (\\d+)}");
  private static final Pattern VARIABLE = Pattern.compile("\\$\\{(\\w+)}");

  private final Map<String, String> saved = new HashMap<>();

  /** Saves a text of an answer. */
  void save(String name, String pointer, JsonNode answer) {
    JsonNode value = answer.at(pointer);
    if (!value.isTextual()) {
      throw new AssertionError("there is no text at " + pointer + " to save");
    }
    saved.put(name, value.asText());
  }

  /** Returns a value of the scenario with its variables filled in. */
  JsonNode fill(JsonNode value) {
    if (value.isTextual()) {
      return TextNode.valueOf(fill(value.asText()));
    }
    JsonNode filled = value.deepCopy();
    if (filled instanceof ObjectNode object) {
      object.properties().forEach(field -> field.setValue(fill(field.getValue())));
    }
    if (filled instanceof ArrayNode array) {
      for (int n = 0; n < array.size(); n++) {
        array.set(n, fill(array.get(n)));
      }
    }
    return filled;
  }

  private String fill(String text) {
    Matcher times = TIMES.matcher(text);
    return times.matches()
        ? "x".repeat(Integer.parseInt(times.group(1)))
        : VARIABLE
            .matcher(text)
            .replaceAll(found -> Matcher.quoteReplacement(saved.get(found.group(1))));
  }

  /** Says what of an answer is not as it is wanted; "": nothing. */
  static String mismatch(JsonNode want, JsonNode got) {
    if (want.isArray()) {
      return mismatchOfAll(want, got);
    }
    if (want.isObject()) {
      return want.properties().stream()
          .map(
              field -> within(field.getKey(), mismatch(field.getValue(), got.path(field.getKey()))))
          .filter(miss -> !miss.isEmpty())
          .findFirst()
          .orElse("");
    }
    return matches(want, got) ? "" : ": is " + got + ", want " + want;
  }

  private static String within(String name, String miss) {
    return miss.isEmpty() ? "" : "/" + name + miss;
  }

  private static String mismatchOfAll(JsonNode want, JsonNode got) {
    Iterator<JsonNode> rest = got.iterator();
    for (JsonNode wanted : want) {
      boolean found = false;
      while (!found && rest.hasNext()) {
        found = mismatch(wanted, rest.next()).isEmpty();
      }
      if (!found) {
        return ": there is no " + wanted;
      }
    }
    return "";
  }

  private static boolean matches(JsonNode want, JsonNode got) {
    boolean nothing = got.isMissingNode() || got.isNull();
    if (want.isNumber()) {
      return got.isNumber() && want.decimalValue().compareTo(got.decimalValue()) == 0;
    }
    if (!want.isTextual()) {
      return want.equals(got) || nothing && want.isBoolean() && !want.asBoolean();
    }
    String text = want.asText();
    if (text.startsWith("{in ")) {
      Duration in = ScenarioPlayer.duration(text.substring("{in ".length(), text.length() - 1));
      Duration late = Duration.between(Instant.now().plus(in), Instant.parse(got.asText()));
      return late.abs().toSeconds() < 60;
    }
    return switch (text) {
      case "{done}" -> true;
      case "{any}" -> !nothing;
      case "{none}" -> nothing || got.isArray() && got.isEmpty();
      default ->
          text.startsWith("{has ")
              ? got.asText().contains(text.substring("{has ".length(), text.length() - 1))
              : got.isTextual() && (text.equals(got.asText()) || sameTime(text, got.asText()));
    };
  }

  private static boolean sameTime(String want, String got) {
    try {
      return OffsetDateTime.parse(want).isEqual(OffsetDateTime.parse(got));
    } catch (DateTimeParseException e) {
      return false;
    }
  }
}
