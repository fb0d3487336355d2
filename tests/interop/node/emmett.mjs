// An application with Emmett's PostgreSQL event store: node emmett.mjs DSN schema|golden|write [SECONDS RUN].
// It writes by several stores at a time, one event to three in an append; transactions stay open and are rolled back.
import { getPostgreSQLEventStore } from "@event-driven-io/emmett-postgresql";
import { setTimeout as sleep } from "node:timers/promises";

const [dsn, task, seconds, run] = process.argv.slice(2);

async function golden(store) {
  await store.appendToStream("account-7", [
    { type: "Opened", data: { owner: "Zoë 😀", at: new Date(0) }, metadata: { by: "x" } },
    { type: "Paid", data: { amount: "12345678901234567890.50", number: 9007199254740993n } },
  ]);
  await store.appendToStream("account-7", [{ type: "Paid", data: { amount: "1.50", number: 3n } }]);
}

async function write(store, name, until) {
  const streams = [0, 1, 2].flatMap((n) => [`account-${name}-${n}`, `cart:${name}-${n}`]);
  while (Date.now() < until) {
    const stream = streams[Math.floor(Math.random() * streams.length)];
    const events = Array.from({ length: 1 + Math.floor(Math.random() * 3) }, () => ({
      type: "Paid", data: { amount: "1.50", number: 1n },
    }));
    try {
      await store.appendToStream(stream, events);
    } catch (error) {
      if (error.message !== "rolled back") throw error;
    }
    await sleep(Math.random() * 20);
  }
}

// Inline projections run inside the transaction of an append, before its commit.
const slow = {
  type: "inline",
  projection: {
    name: "slow",
    canHandle: ["Paid"],
    handle: async () => {
      const chance = Math.random();
      if (chance < 0.2) await sleep(Math.random() * 700);
      if (chance > 0.9) throw new Error("rolled back");
    },
  },
};

function store(autoMigration, projections) {
  return getPostgreSQLEventStore(dsn, { schema: { autoMigration }, projections });
}

async function all(names, work) {
  const stores = names.map(() => store("None", task === "write" ? [slow] : []));
  await Promise.all(stores.map((one, n) => work(one, names[n])));
  await Promise.all(stores.map((one) => one.close()));
}

if (task === "schema") {
  const one = store("CreateOrUpdate", []);
  await one.schema.migrate();
  await one.close();
} else if (task === "golden") {
  await all(["golden"], golden);
} else {
  const until = Date.now() + 1000 * Number(seconds);
  await all([0, 1, 2, 3, 4, 5].map((n) => `${run}-${n}`), (one, name) => write(one, name, until));
}
