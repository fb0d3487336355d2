package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.apache.pekko.serialization.jackson.JacksonMigration;

/** Events that Jackson writes: one as JSON, one as CBOR. */
public final class Events {
  private Events() {}

  public interface Event {}

  public record Opened(String owner, Instant at, List<String> labels) implements Event {}

  public record Paid(BigDecimal amount, long number, String note, Map<String, String> more, byte[] key) implements Event {}

  public static final class OpenedMigration extends JacksonMigration {
    @Override
    public int currentVersion() {
      return 3;
    }

    @Override
    public JsonNode transform(int fromVersion, JsonNode json) {
      return json;
    }
  }
}
