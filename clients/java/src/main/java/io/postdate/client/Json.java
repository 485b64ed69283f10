package io.postdate.client;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.annotation.JsonSetter;
import com.fasterxml.jackson.annotation.Nulls;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationConfig;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.introspect.BeanPropertyDefinition;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.datatype.jsr310.JavaTimeModule;
import io.postdate.client.model.Change;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.openapitools.jackson.nullable.JsonNullable;
import org.openapitools.jackson.nullable.JsonNullableModule;

/** JSON as the API has it. */
final class Json {
  /** Passes over fields that a newer server knows, and keeps every digit. */
  static final ObjectMapper MAPPER =
      JsonMapper.builder()
          .addModules(new JavaTimeModule(), new JsonNullableModule())
          .defaultPropertyInclusion(
              JsonInclude.Value.construct(JsonInclude.Include.NON_NULL, JsonInclude.Include.ALWAYS))
          .disable(SerializationFeature.WRITE_DATES_AS_TIMESTAMPS)
          .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
          .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
          .addMixIn(Change.class, ChangeMixin.class)
          .build();

  /** Reads answers. No list of the API has a null in it, beside payloads. */
  private static final ObjectMapper ANSWERS =
      MAPPER.copy().setDefaultSetterInfo(JsonSetter.Value.forContentNulls(Nulls.FAIL));

  /** The fields that the document requires of a class. */
  private static final ClassValue<List<BeanPropertyDefinition>> REQUIRED =
      new ClassValue<>() {
        @Override
        protected List<BeanPropertyDefinition> computeValue(Class<?> type) {
          DeserializationConfig config = ANSWERS.getDeserializationConfig();
          return config.introspect(config.constructType(type)).findProperties().stream()
              .filter(BeanPropertyDefinition::isRequired)
              .toList();
        }
      };

  private Json() {}

  static String write(Object value) {
    String text;
    try {
      text = MAPPER.writeValueAsString(value);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException("this has no form in JSON: " + e.getMessage(), e);
    }
    if (!StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
      throw new IllegalArgumentException(
          "a text has half of a character (a lone surrogate): send bytes with Payloads.set");
    }
    return text;
  }

  /** Reads an answer as an object of a class. */
  static <T> Transport.Reader<T> as(Class<T> type) {
    return answer -> read(answer.text(), type);
  }

  /** Reads JSON that is not null, and has what the document requires of it. */
  static <T> T read(String text, Class<T> type) throws JsonProcessingException {
    T value = ANSWERS.readValue(text, type);
    if (value == null) {
      throw new IllegalStateException("it is null");
    }
    for (BeanPropertyDefinition field : REQUIRED.get(type)) {
      if (field.getGetter().getValue(value) == null) {
        throw new IllegalStateException("it has no " + field.getName());
      }
    }
    return value;
  }

  /** A change without a payload has none, although the generated class begins with null. */
  private abstract static class ChangeMixin {
    @JsonProperty("payload")
    @JsonInclude(value = JsonInclude.Include.CUSTOM, valueFilter = Nothing.class)
    abstract JsonNullable<Object> getPayload_JsonNullable();
  }

  /** What is left out: a filter is equal to that. */
  private static final class Nothing {
    @Override
    public boolean equals(Object other) {
      return other == null
          || other instanceof JsonNullable<?> value && (!value.isPresent() || value.get() == null);
    }

    @Override
    public int hashCode() {
      return 0;
    }
  }
}
