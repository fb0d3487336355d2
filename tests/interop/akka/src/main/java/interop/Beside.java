package interop;

import akka.Done;
import akka.actor.typed.ActorRef;
import akka.actor.typed.ActorSystem;
import akka.actor.typed.Behavior;
import akka.actor.typed.javadsl.ActorContext;
import akka.actor.typed.javadsl.Behaviors;
import akka.japi.Pair;
import akka.persistence.query.Offset;
import akka.persistence.query.typed.EventEnvelope;
import akka.persistence.r2dbc.query.javadsl.R2dbcReadJournal;
import akka.persistence.typed.PersistenceId;
import akka.persistence.typed.javadsl.CommandHandler;
import akka.persistence.typed.javadsl.EventHandler;
import akka.persistence.typed.javadsl.EventSourcedBehavior;
import akka.projection.Projection;
import akka.projection.ProjectionBehavior;
import akka.projection.ProjectionId;
import akka.projection.StatusObserver;
import akka.projection.HandlerRecoveryStrategy;
import akka.projection.eventsourced.javadsl.EventSourcedProvider;
import akka.projection.javadsl.SourceProvider;
import akka.projection.r2dbc.javadsl.R2dbcHandler;
import akka.projection.r2dbc.javadsl.R2dbcProjection;
import akka.projection.r2dbc.javadsl.R2dbcSession;
import com.typesafe.config.ConfigFactory;
import io.r2dbc.spi.Statement;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * What the benchmark beside Akka asks of Akka: projections that fold landings of planes into delays per carrier and day, and entities
 * that persist landings.
 *
 * <p>Arguments: the URL of the database, how long queries wait where there is nothing new, and how long behind the current time they stay.
 * What it is to do it reads from its input, a line for each; the end of its input ends it:
 *
 * <ul>
 *   <li>"project NAME TYPE KIND RANGES SIZE": projects an entity type, "exactly-once" or "grouped", an instance for each range of slices;
 *   <li>"stop": stops those projections, and says when one is: "stopped NAME 0 NANOSECONDS";
 *   <li>"persist N": has a plane persist its next landing, and says when that is done: "persisted ID NUMBER NANOSECONDS";
 *   <li>"tell": says from now on what is handled and committed: "handled ID NUMBER NANOSECONDS".
 * </ul>
 */
public final class Beside {
  private Beside() {}

  private static final String UPSERT =
      "INSERT INTO delays AS d (carrier, day, flights, delay, worst) %s ON CONFLICT (carrier, day) DO UPDATE SET "
          + "flights = d.flights + excluded.flights, delay = d.delay + excluded.delay, worst = greatest(d.worst, excluded.worst)";
  private static final String UPSERT_ONE = UPSERT.formatted("VALUES ($1, $2, 1, $3::integer, $3::integer)");
  private static final String UPSERT_MANY =
      UPSERT.formatted("SELECT * FROM unnest($1::text[], $2::date[], $3::integer[], $4::bigint[], $5::integer[])");

  private static volatile boolean tells;

  private static void tell(String what, String id, long number) {
    System.out.println(what + " " + id + " " + number + " " + System.nanoTime());
  }

  private static final class One extends R2dbcHandler<EventEnvelope<Events.Landed>> {
    @Override
    public CompletionStage<Done> process(R2dbcSession session, EventEnvelope<Events.Landed> envelope) {
      var event = envelope.event();
      Statement statement = session.createStatement(UPSERT_ONE);
      statement.bind(0, event.carrier()).bind(1, event.day()).bind(2, event.delay());
      return session.updateOne(statement).thenApply(n -> Done.getInstance());
    }
  }

  private static final class Row {
    private int flights;
    private long delay;
    private int worst = Integer.MIN_VALUE;
  }

  private static final class Group extends R2dbcHandler<List<EventEnvelope<Events.Landed>>> {
    @Override
    public CompletionStage<Done> process(R2dbcSession session, List<EventEnvelope<Events.Landed>> envelopes) {
      Map<Pair<String, LocalDate>, Row> rows = new HashMap<>();
      for (var envelope : envelopes) {
        var event = envelope.event();
        var row = rows.computeIfAbsent(Pair.create(event.carrier(), event.day()), key -> new Row());
        row.flights++;
        row.delay += event.delay();
        row.worst = Math.max(row.worst, event.delay());
      }
      // In one order: ranges that write the same rows must not wait for each other.
      var sorted = new ArrayList<>(rows.entrySet());
      sorted.sort((a, b) -> a.getKey().toString().compareTo(b.getKey().toString()));
      Statement statement = session.createStatement(UPSERT_MANY);
      statement
          .bind(0, sorted.stream().map(e -> e.getKey().first()).toArray(String[]::new))
          .bind(1, sorted.stream().map(e -> e.getKey().second()).toArray(LocalDate[]::new))
          .bind(2, sorted.stream().map(e -> e.getValue().flights).toArray(Integer[]::new))
          .bind(3, sorted.stream().map(e -> e.getValue().delay).toArray(Long[]::new))
          .bind(4, sorted.stream().map(e -> e.getValue().worst).toArray(Integer[]::new));
      return session.updateOne(statement).thenApply(n -> Done.getInstance());
    }
  }

  private static final class Handled extends StatusObserver<EventEnvelope<Events.Landed>> {
    @Override
    public void started(ProjectionId id) {}

    @Override
    public void failed(ProjectionId id, Throwable cause) {}

    @Override
    public void stopped(ProjectionId id) {
      tell("stopped", id.id(), 0);
    }

    @Override
    public void beforeProcess(ProjectionId id, EventEnvelope<Events.Landed> envelope) {}

    @Override
    public void afterProcess(ProjectionId id, EventEnvelope<Events.Landed> envelope) {}

    @Override
    public void error(ProjectionId id, EventEnvelope<Events.Landed> envelope, Throwable cause, HandlerRecoveryStrategy strategy) {}

    @Override
    public void offsetProgress(ProjectionId id, EventEnvelope<Events.Landed> envelope) {
      if (tells) {
        tell("handled", envelope.persistenceId(), envelope.sequenceNr());
      }
    }
  }

  private static final class Plane extends EventSourcedBehavior<Integer, Events.Landed, Long> {
    private final String id;

    Plane(PersistenceId id) {
      super(id);
      this.id = id.id();
    }

    @Override
    public Long emptyState() {
      return 0L;
    }

    @Override
    public CommandHandler<Integer, Events.Landed, Long> commandHandler() {
      return (state, n) ->
          Effect()
              .persist(new Events.Landed("UA", n, "JFK", LocalDate.of(2013, 1, 1).plusDays(n / 900), n % 24, n % 180 - 30))
              .thenRun(after -> tell("persisted", id, after));
    }

    @Override
    public EventHandler<Long, Events.Landed> eventHandler() {
      return (state, event) -> state + 1;
    }
  }

  private static final class Application {
    private final ActorContext<String> context;
    private final Map<Integer, ActorRef<Integer>> planes = new HashMap<>();
    private final List<ActorRef<ProjectionBehavior.Command>> projections = new ArrayList<>();
    private final AtomicInteger started = new AtomicInteger();

    Application(ActorContext<String> context) {
      this.context = context;
    }

    Behavior<String> obey(String line) {
      String[] said = line.split(" ");
      switch (said[0]) {
        case "project" -> project(said[1], said[2], said[3], Integer.parseInt(said[4]), Integer.parseInt(said[5]));
        case "stop" -> {
          projections.forEach(one -> one.tell(ProjectionBehavior.stopMessage()));
          projections.clear();
        }
        case "persist" -> plane(Integer.parseInt(said[1]) % 100).tell(Integer.parseInt(said[1]));
        case "tell" -> tells = true;
        default -> throw new IllegalArgumentException(line);
      }
      return Behaviors.same();
    }

    private ActorRef<Integer> plane(int number) {
      return planes.computeIfAbsent(
          number, n -> context.spawn(Behaviors.setup(c -> new Plane(PersistenceId.of("plane", "L" + n))), "plane-" + n));
    }

    private void project(String name, String entityType, String kind, int ranges, int size) {
      var system = context.getSystem();
      for (Pair<Integer, Integer> range : EventSourcedProvider.sliceRanges(system, R2dbcReadJournal.Identifier(), ranges)) {
        var id = ProjectionId.of(name, name + "-" + range.first() + "-" + range.second());
        SourceProvider<Offset, EventEnvelope<Events.Landed>> events =
            EventSourcedProvider.eventsBySlices(system, R2dbcReadJournal.Identifier(), entityType, range.first(), range.second());
        Projection<EventEnvelope<Events.Landed>> projection =
            kind.equals("grouped")
                ? R2dbcProjection.groupedWithin(id, Optional.empty(), events, Group::new, system)
                    .withGroup(size, Duration.ofMillis(500))
                : R2dbcProjection.exactlyOnce(id, Optional.empty(), events, One::new, system);
        projections.add(
            context.spawn(ProjectionBehavior.create(projection.withStatusObserver(new Handled())), "range-" + started.incrementAndGet()));
      }
    }
  }

  private static Behavior<String> application() {
    return Behaviors.setup(
        context -> {
          var application = new Application(context);
          return Behaviors.receive(String.class).onAnyMessage(application::obey).build();
        });
  }

  public static void main(String[] args) throws Exception {
    var config =
        ConfigFactory.parseMap(
                Map.of(
                    "akka.persistence.r2dbc.connection-factory.url", args[0],
                    "akka.persistence.r2dbc.connection-factory.max-size", 20,
                    "akka.persistence.r2dbc.query.refresh-interval", args[1],
                    "akka.persistence.r2dbc.query.behind-current-time", args[2],
                    "akka.persistence.r2dbc.journal.publish-events", "off"))
            .withFallback(ConfigFactory.load());
    var system = ActorSystem.create(application(), "beside", config);
    System.out.println("ready");
    var input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      system.tell(line);
    }
    system.terminate();
    system.getWhenTerminated().toCompletableFuture().join();
  }
}
