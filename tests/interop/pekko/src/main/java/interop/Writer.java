package interop;

import com.typesafe.config.ConfigFactory;
import java.math.BigDecimal;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.ActorSystem;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.SupervisorStrategy;
import org.apache.pekko.actor.typed.javadsl.Behaviors;
import org.apache.pekko.persistence.typed.PersistenceId;
import org.apache.pekko.persistence.typed.javadsl.CommandHandler;
import org.apache.pekko.persistence.typed.javadsl.EventHandler;
import org.apache.pekko.persistence.typed.javadsl.EventSourcedBehavior;

/**
 * An application that persists by pekko-persistence-jdbc: entities of two kinds, one to four events at a time. On a machine that is
 * busy it may fail to connect at first, and starts again. It goes on until a line is sent to it.
 *
 * <p>Arguments: JDBC URL, user.
 */
public final class Writer {
  private Writer() {}

  private static final class Entity extends EventSourcedBehavior<Integer, Events.Event, Integer> {
    Entity(PersistenceId id) {
      super(id, SupervisorStrategy.restartWithBackoff(Duration.ofMillis(100), Duration.ofSeconds(1), 0.1));
    }

    @Override
    public Integer emptyState() {
      return 0;
    }

    @Override
    public CommandHandler<Integer, Events.Event, Integer> commandHandler() {
      return (state, count) -> {
        List<Events.Event> events = new ArrayList<>();
        for (int n = 1; n <= count; n++) {
          events.add(
              (state + n) % 2 == 1
                  ? new Events.Opened("owner " + (state + n), Instant.EPOCH, List.of())
                  : new Events.Paid(new BigDecimal("1.50"), state + n, null, Map.of(), new byte[0]));
        }
        return Effect().persist(events);
      };
    }

    @Override
    public EventHandler<Integer, Events.Event> eventHandler() {
      return (state, event) -> state + 1;
    }

    @Override
    public Set<String> tagsFor(Events.Event event) {
      return event instanceof Events.Paid ? Set.of("paid", "money") : Set.of();
    }
  }

  public static void main(String[] args) throws Exception {
    var config =
        ConfigFactory.parseMap(
                Map.of(
                    "pekko.persistence.journal.plugin", "jdbc-journal",
                    "jdbc-journal.slick.profile", "slick.jdbc.PostgresProfile$",
                    "jdbc-journal.slick.db.url", args[0],
                    "jdbc-journal.slick.db.user", args[1],
                    "jdbc-journal.slick.db.password", "",
                    "jdbc-journal.slick.db.driver", "org.postgresql.Driver",
                    "jdbc-journal.slick.db.numThreads", 6,
                    "jdbc-journal.slick.db.maxConnections", 6,
                    "jdbc-journal.slick.db.minConnections", 1))
            .withFallback(ConfigFactory.load());
    List<ActorRef<Integer>> entities = Collections.synchronizedList(new ArrayList<>());
    Behavior<Void> root =
        Behaviors.setup(
            context -> {
              for (int n = 0; n < 30; n++) {
                var id = PersistenceId.of(n % 2 == 0 ? "account" : "cart", Integer.toString(n));
                entities.add(context.spawn(Behaviors.setup(c -> new Entity(id)), "entity" + n));
              }
              return Behaviors.empty();
            });
    var system = ActorSystem.create(root, "writer", config);
    var chance = new Random(1);
    while (System.in.available() == 0) {
      if (entities.size() == 30) {
        entities.get(chance.nextInt(30)).tell(1 + chance.nextInt(4));
      }
      Thread.sleep(2);
    }
    system.terminate();
    system.getWhenTerminated().toCompletableFuture().join();
  }
}
