package interop;

import akka.actor.typed.ActorRef;
import akka.actor.typed.ActorSystem;
import akka.actor.typed.Behavior;
import akka.actor.typed.SupervisorStrategy;
import akka.actor.typed.javadsl.Behaviors;
import akka.persistence.typed.PersistenceId;
import akka.persistence.typed.javadsl.CommandHandler;
import akka.persistence.typed.javadsl.EventHandler;
import akka.persistence.typed.javadsl.EventSourcedBehavior;
import akka.persistence.typed.javadsl.RetentionCriteria;
import com.typesafe.config.ConfigFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;

/**
 * An application that persists by akka-persistence-r2dbc: entities of two kinds, one to four events at a time. Some entities stop and
 * start again now and then, and carts delete their old events. It goes on until a line is sent to it.
 *
 * <p>Arguments: the URL of the database, the number of entities, milliseconds between two commands.
 */
public final class Writer {
  private Writer() {}

  private static final class Entity extends EventSourcedBehavior<Integer, Events.Event, Long> {
    private final boolean deletes;

    Entity(PersistenceId id) {
      super(id, SupervisorStrategy.restartWithBackoff(Duration.ofMillis(100), Duration.ofSeconds(1), 0.1));
      deletes = id.entityTypeHint().equals("cart");
    }

    @Override
    public Long emptyState() {
      return 0L;
    }

    @Override
    public CommandHandler<Integer, Events.Event, Long> commandHandler() {
      return (state, count) -> {
        if (count == 0) {
          return Effect().stop();
        }
        List<Events.Event> events = new ArrayList<>();
        for (int n = 1; n <= count; n++) {
          events.add(new Events.Paid(state + n, "note " + (state + n)));
        }
        return Effect().persist(events);
      };
    }

    @Override
    public EventHandler<Long, Events.Event> eventHandler() {
      return (state, event) -> state + 1;
    }

    @Override
    public Set<String> tagsFor(Events.Event event) {
      return Set.of("paid");
    }

    @Override
    public RetentionCriteria retentionCriteria() {
      return deletes ? RetentionCriteria.snapshotEvery(20, 2).withDeleteEventsOnSnapshot() : RetentionCriteria.disabled();
    }
  }

  private static Behavior<Integer> application(int entities) {
    return Behaviors.setup(
        context -> {
          List<ActorRef<Integer>> known = new ArrayList<>();
          for (int n = 0; n < entities; n++) {
            known.add(null);
          }
          var chance = new Random(1);
          int[] started = {0};
          return Behaviors.receive(Integer.class)
              .onAnyMessage(
                  count -> {
                    int n = chance.nextInt(entities);
                    var entity = known.get(n);
                    if (entity == null) {
                      var id = PersistenceId.of(n % 4 == 3 ? "cart" : "account", Integer.toString(n));
                      entity = context.spawn(Behaviors.setup(c -> new Entity(id)), "entity" + n + "-" + started[0]++);
                      context.watchWith(entity, -1);
                      known.set(n, entity);
                    }
                    entity.tell(count);
                    if (chance.nextInt(50) == 0) {
                      entity.tell(0);
                      known.set(n, null);
                    }
                    return Behaviors.same();
                  })
              .build();
        });
  }

  public static void main(String[] args) throws Exception {
    int entities = Integer.parseInt(args[1]);
    var system = ActorSystem.create(application(entities), "writer", ConfigFactory.parseMap(Map.of("akka.persistence.r2dbc.connection-factory.url", args[0])).withFallback(ConfigFactory.load()));
    var chance = new Random(2);
    while (System.in.available() == 0) {
      system.tell(1 + chance.nextInt(4));
      Thread.sleep(Long.parseLong(args[2]));
    }
    Thread.sleep(3000);
    system.terminate();
    system.getWhenTerminated().toCompletableFuture().join();
  }
}
