package interop;

import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import com.typesafe.config.ConfigFactory;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.pekko.actor.ActorSystem;
import org.apache.pekko.serialization.Serialization;
import org.apache.pekko.serialization.SerializationExtension;
import org.apache.pekko.serialization.Serializers;

/** Prints what Pekko's own serializers make of some events, a line of JSON each: tests/fixtures/recorded/pekko_payloads.jsonl. */
public final class Golden {
  private Golden() {}

  private static void print(String name, ActorSystem system, Object event) {
    Serialization serialization = SerializationExtension.get(system);
    var serializer = serialization.findSerializerFor(event);
    System.out.printf(
        "{\"name\": \"%s\", \"serializer_id\": %d, \"manifest\": \"%s\", \"payload\": \"%s\"}%n",
        name, serializer.identifier(), Serializers.manifestFor(serializer, event),
        HexFormat.of().formatHex(serialization.serialize(event).get()));
  }

  private static ActorSystem system(String more) {
    return ActorSystem.create("golden", ConfigFactory.parseString(more).withFallback(ConfigFactory.load()));
  }

  public static void main(String[] args) {
    var opened = new Events.Opened("Zoë 😀", Instant.parse("2026-01-02T03:04:05.678901Z"), List.of("a", "b"));
    var paid = new Events.Paid(new BigDecimal("12345678901234567890.50"), 7L, null, Map.of("by", "x"), new byte[] {1, 2});
    var large = new Events.Opened("x".repeat(3000), Instant.EPOCH, List.of());
    var struct = Struct.newBuilder().putFields("n", Value.newBuilder().setNumberValue(1.5).build()).build();
    var plain = system("");
    print("json", plain, opened);
    print("cbor", plain, paid);
    print("protobuf", plain, struct);
    print("string", plain, "plain \"text\"");
    print("long", plain, 123456789012L);
    print("int", plain, -7);
    print("boolean", plain, true);
    plain.terminate();
    for (String algorithm : List.of("gzip", "lz4")) {
      var packed =
          system(
              "pekko.serialization.jackson.jackson-json.compression { algorithm = "
                  + algorithm
                  + ", compress-larger-than = 1 KiB }\npekko.serialization.jackson.jackson-cbor.compression { algorithm = "
                  + algorithm
                  + ", compress-larger-than = 16 B }");
      print("json " + algorithm, packed, large);
      print("cbor " + algorithm, packed, paid);
      packed.terminate();
    }
    var migrated =
        system(
            "pekko.serialization.jackson.migrations { \"interop.Events$Opened\" = \"interop.Events$OpenedMigration\" }");
    print("json version 3", migrated, opened);
    migrated.terminate();
  }
}
