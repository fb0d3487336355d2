package interop;

import akka.Done;
import akka.actor.typed.ActorSystem;
import akka.actor.typed.javadsl.Behaviors;
import akka.japi.Pair;
import akka.persistence.query.Offset;
import akka.persistence.query.typed.EventEnvelope;
import akka.persistence.r2dbc.query.javadsl.R2dbcReadJournal;
import akka.projection.ProjectionBehavior;
import akka.projection.ProjectionId;
import akka.projection.eventsourced.javadsl.EventSourcedProvider;
import akka.projection.javadsl.SourceProvider;
import akka.projection.r2dbc.javadsl.R2dbcHandler;
import akka.projection.r2dbc.javadsl.R2dbcProjection;
import akka.projection.r2dbc.javadsl.R2dbcSession;
import com.typesafe.config.ConfigFactory;
import io.r2dbc.spi.Statement;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionStage;

/**
 * Akka's own projection of accounts: an instance for each range of slices, whose effects commit with its offsets, until it is killed.
 *
 * <p>Arguments: the URL of the database, "exactly-once" or "grouped", the number of ranges, what it does: "record" has a row for each event,
 * "add" adds to a row of each entity; the size of groups.
 */
public final class Projecting {
  private Projecting() {}

  private static final String RECORD = "INSERT INTO effects (source_id, seq_nr) VALUES ($1, $2)";
  private static final String RECORD_ALL =
      "INSERT INTO effects (source_id, seq_nr) SELECT * FROM unnest($1::text[], $2::bigint[])";
  private static final String ADD =
      "INSERT INTO totals AS t VALUES ($1, $2, 1) ON CONFLICT (source_id) DO UPDATE SET amount = t.amount + $2, events = t.events + 1";
  private static final String ADD_ALL =
      "INSERT INTO totals AS t SELECT s.id, sum(s.amount), count(*) FROM unnest($1::text[], $2::bigint[]) AS s (id, amount) GROUP BY s.id "
          + "ON CONFLICT (source_id) DO UPDATE SET amount = t.amount + excluded.amount, events = t.events + excluded.events";

  private static long value(EventEnvelope<Events.Event> envelope, boolean adds) {
    return adds ? ((Events.Paid) envelope.event()).amount() : envelope.sequenceNr();
  }

  private static final class One extends R2dbcHandler<EventEnvelope<Events.Event>> {
    private final boolean adds;

    One(boolean adds) {
      this.adds = adds;
    }

    @Override
    public CompletionStage<Done> process(R2dbcSession session, EventEnvelope<Events.Event> envelope) {
      Statement statement = session.createStatement(adds ? ADD : RECORD);
      statement.bind(0, envelope.persistenceId()).bind(1, value(envelope, adds));
      return session.updateOne(statement).thenApply(n -> Done.getInstance());
    }
  }

  private static final class Group extends R2dbcHandler<List<EventEnvelope<Events.Event>>> {
    private final boolean adds;

    Group(boolean adds) {
      this.adds = adds;
    }

    @Override
    public CompletionStage<Done> process(R2dbcSession session, List<EventEnvelope<Events.Event>> envelopes) {
      Statement statement = session.createStatement(adds ? ADD_ALL : RECORD_ALL);
      statement
          .bind(0, envelopes.stream().map(EventEnvelope::persistenceId).toArray(String[]::new))
          .bind(1, envelopes.stream().map(e -> value(e, adds)).toArray(Long[]::new));
      return session.updateOne(statement).thenApply(n -> Done.getInstance());
    }
  }

  public static void main(String[] args) {
    boolean adds = args[3].equals("add");
    ActorSystem.create(
        Behaviors.<Void>setup(
            context -> {
              var system = context.getSystem();
              var ranges =
                  EventSourcedProvider.sliceRanges(system, R2dbcReadJournal.Identifier(), Integer.parseInt(args[2]));
              for (Pair<Integer, Integer> range : ranges) {
                var id = ProjectionId.of("accounts", "accounts-" + range.first() + "-" + range.second());
                SourceProvider<Offset, EventEnvelope<Events.Event>> events =
                    EventSourcedProvider.eventsBySlices(
                        system, R2dbcReadJournal.Identifier(), "account", range.first(), range.second());
                var behavior =
                    args[1].equals("grouped")
                        ? ProjectionBehavior.create(
                            R2dbcProjection.groupedWithin(id, Optional.empty(), events, () -> new Group(adds), system)
                                .withGroup(Integer.parseInt(args[4]), Duration.ofMillis(500)))
                        : ProjectionBehavior.create(
                            R2dbcProjection.exactlyOnce(id, Optional.empty(), events, () -> new One(adds), system));
                context.spawn(behavior, "range-" + range.first());
              }
              return Behaviors.empty();
            }),
        "projecting",
        ConfigFactory.parseMap(Map.of("akka.persistence.r2dbc.connection-factory.url", args[0])).withFallback(ConfigFactory.load()));
  }
}
