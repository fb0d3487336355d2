/** Who runs projections, and which transactions hold the horizon back. */

import { $ } from "./actions.js";
import { tag } from "./owners.js";
import { ago, duration, keep, make, number, row, say } from "./page.js";

/** Seconds for which a transaction may be open before it is shown as holding the horizon back. */
const OPEN_LONG = 1;

export const openLong = (writers) => writers.filter((writer) => writer.age >= OPEN_LONG);

export function showWorkers({ workers, writers, at }) {
  $("no-workers").hidden = workers.length > 0;
  $("workers").hidden = !workers.length;
  keep($("workers").tBodies[0], workers, (worker) => worker.owner, makeWorker, (line, worker) => showWorker(line, worker, at));
  showWriters(openLong(writers));
}

function makeWorker(worker) {
  const line = make("tr");
  line.tag = tag(worker.owner);
  return line;
}

function showWorker(line, worker, at) {
  const state = worker.alive ? (worker.leaving ? "leaving" : "alive") : "gone";
  const lease = worker.lease_until - at;
  const held = Object.entries(worker.slices).map(([name, slices]) => `${name} (${number(slices)} slices)`);
  const few = held.slice(0, 5).join(", ");
  const more = held.length - 5;
  row(line, [
    ["Worker", line.tag],
    ["State", state, `state-${state}`],
    ["Host", worker.host],
    ["Process", String(worker.pid)],
    ["Ranges", number(worker.ranges), "number"],
    ["Lease", lease > 0 ? `${Math.round(lease)} s left` : `ended ${ago(worker.lease_until, at)}`],
    ["Holds", more > 0 ? `${few} and ${number(more)} more` : few],
  ]);
}

function showWriters(writers) {
  say($("writers-text"), writers.length
    ? "Open transactions that have appended: what they may still commit is waited for."
    : "Nothing: no transaction that has appended is open for longer than a second.");
  keep($("writers"), writers, (writer, index) => `${writer.pid} ${index}`, () => make("li", {}, make("strong"), make("span")), (item, writer) => {
    say(item.children[0], `open for ${duration(writer.age)}`);
    const process = writer.pid === null ? "a prepared transaction" : `process ${writer.pid}`;
    say(item.children[1], `${writer.application_name || "unnamed application"} · ${process}`);
  });
}
