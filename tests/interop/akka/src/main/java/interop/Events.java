package interop;

/** What the entities persist. */
public final class Events {
  private Events() {}

  public interface Event {}

  public record Paid(long amount, String note) implements Event {}
}
