package interop;

import java.time.LocalDate;

/** What the entities persist. */
public final class Events {
  private Events() {}

  public interface Event {}

  public record Paid(long amount, String note) implements Event {}

  public record Landed(String carrier, int flight, String origin, LocalDate day, int hour, int delay) implements Event {}
}
