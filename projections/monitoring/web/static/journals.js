/** The journals that projections read, and rebuilds that are unfinished. */

import { $ } from "./actions.js";
import { command } from "./commands.js";
import { slices } from "./heat_map.js";
import { ago, duration, keep, make, mark, number, row, say, short } from "./page.js";
import { addressOf } from "./views.js";

/** What reads a journal: a few names that lead to their pages, and how many more there are. */
const FEW = 8;

export function showJournals({ journals, projections }) {
  const away = new Map(projections.filter((found) => found.state === "unreachable").map((found) => [found.journal, found.reason]));
  keep($("journals-table").tBodies[0], journals, (one) => one.name ?? "", () => make("tr"), (line, one) => {
    const why = one.name === null ? undefined : away.get(one.name);
    row(line, [
      ["Journal", one.name ?? "of this database", "name"],
      ["Kind", one.kind === "own" ? "own" : one.kind === "named" ? "named to workers" : one.kind, "whole"],
      ["State", why ?? (one.readers.length ? "read" : "read by none"), why ? "state-gone error" : one.readers.length ? "state-read whole" : "whole"],
      ["Where", one.kind === "own" ? one.entity_types.join(", ") || "no events yet" : one.place ?? "–", "code"],
      ["Read by", readers(line, one)],
    ]);
  });
}

function readers(line, { readers: names, readers_total: total }) {
  line.readers ??= make("span", { class: "names" });
  keep(line.readers, names.slice(0, FEW), (name) => name, (name) => make("a", { href: addressOf(name) }, short(name)), () => {});
  line.more ??= make("span", { class: "quiet" });
  say(line.more, total > FEW ? `and ${number(total - FEW)} more` : total ? "" : "none");
  line.readers.append(line.more);
  return line.readers;
}

export function showRebuilds({ rebuilds, at }) {
  $("no-rebuilds").hidden = rebuilds.length > 0;
  $("rebuilds").hidden = !rebuilds.length;
  keep($("rebuilds-table").tBodies[0], rebuilds, (one) => one.name, makeRebuild, (line, one) => showRebuild(line, one, at));
}

function makeRebuild({ name }) {
  const line = make("tr");
  line.link = make("a", { href: addressOf(name) }, short(name));
  line.bar = make("progress", { max: 1, "aria-label": `Rebuild of ${name}` });
  line.progress = make("div", { class: "progress" }, line.bar, make("span"));
  line.command = command();
  line.next = make("div", {}, make("span"), line.command);
  return line;
}

function showRebuild(line, one, at) {
  mark(line.bar, "value", one.parts ? one.parts_done / one.parts : 0);
  say(line.progress.lastElementChild, `${number(one.parts_done)} of ${number(one.parts)} parts, ${number(one.events)} events`);
  say(line.next.firstElementChild, one.error ?? (one.led ? "" : "No process runs it: run it again to go on, or end it."));
  line.command.show(one.led ? [] : ["projections", "rebuilds", "cancel", one.name]);
  row(line, [
    ["Projection", line.link, "name"],
    ["Slices", one.first === 0 && one.last === 1023 ? "all" : slices(one)],
    ["Version", String(one.version), "number"],
    ["State", one.led ? one.state : `${one.state}, interrupted`, one.error ? "state-gone" : one.led ? "state-alive" : "state-leaving"],
    ["Progress", line.progress],
    ["Began", ago(one.started_at, at), "whole"],
    ["Remaining", remaining(one), "number whole"],
    ["", line.next, "error"],
  ]);
}

const remaining = ({ state, remaining: left }) =>
  (state === "verified" ? "is swapped in" : left === null ? "not known yet" : `about ${duration(left)}`);
