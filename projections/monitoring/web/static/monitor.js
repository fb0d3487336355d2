/** The page: takes in one document a second, and shows the part of it that the address names. */

import { $, beside } from "./actions.js";
import { Groups } from "./groups.js";
import { Overview } from "./overview.js";
import { showJournals, showRebuilds } from "./journals.js";
import { nameOwners } from "./owners.js";
import { clock, compact, duration, keep, make, mark, number, pairs, say, seen as visible } from "./page.js";
import { ProjectionPage } from "./projection.js";
import { opened } from "./stream.js";
import { place, reveal } from "./views.js";
import { Webhooks } from "./webhooks.js";
import { openLong, showWorkers } from "./workers.js";

const groups = new Groups();
const webhooks = new Webhooks();
const overview = new Overview();
const projection = new ProjectionPage();
let shown = null;

/* ---- the connection ---- */

let heardAt = Date.now();

const takers = {
  message: (data) => take(JSON.parse(data)),
  lost: () => disconnected(),
};

function take(seen) {
  heardAt = Date.now();
  if (seen.error !== undefined) {
    databaseLost(seen.error);
    return;
  }
  connection("live", `Live · ${clock(seen.at)}`);
  banner("");
  shown = seen;
  show();
}

function disconnected() {
  connection("lost", "Reconnecting");
  banner(`The monitor does not answer; trying again.${asOf()}`);
}

function databaseLost(reason) {
  connection("lost", "Database lost");
  banner(`The database cannot be asked: ${reason}.${asOf()}`);
}

/** A connection that is cut says nothing, not even that it is lost. */
function watch() {
  const patience = Math.max(20, 5 * (shown?.every ?? 1)) * 1000;
  if (Date.now() - heardAt > patience) {
    heardAt = Date.now();
    disconnected();
    stream.open();
  }
}

const asOf = () => (shown ? ` What is shown is as of ${clock(shown.at)}.` : "");

function connection(state, text) {
  mark($("connection"), "data-state", state);
  say($("connection"), text);
  mark(document.body, "data-stale", state === "live" ? null : "");
}

function banner(text) {
  say($("banner"), text);
  $("banner").hidden = !text;
}

/* ---- what is shown ---- */

function show() {
  showVacancies(shown);
  nameOwners([...shown.workers.map((worker) => worker.owner), ...projection.owners]);
  showTotals(shown);
  showTabs(shown);
  overview.show(shown);
  groups.show(shown);
  webhooks.show(shown);
  showWorkers(shown);
  showJournals(shown);
  showRebuilds(shown);
  projection.follow();
}

/** Go where the address points. */
function arrive() {
  const { view, name } = place();
  reveal(view);
  projection.open(view === "projection" ? name : null);
  if (view === "overview") overview.arrive();
  scrollTo(0, 0);
}

/** First of all what nobody does: nothing else on the page need show it. */
function showVacancies({ vacancies }) {
  const list = $("vacancies");
  list.hidden = !vacancies.length;
  keep(list, vacancies, (one, index) => index, () => make("li"), (line, one) => say(line, visible(`${capital(one.text)}: start ${one.start}.`)));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const dead = ({ groups: known }) => known.reduce((total, found) => total + found.dead_total, 0);

function showTotals(seen) {
  const { projections, workers, writers, quarantined_total: setApart, webhooks: sent } = seen;
  const sum = (name) => projections.reduce((total, found) => total + (found[name] ?? 0), 0);
  const alive = workers.filter((worker) => worker.alive).length;
  const [oldest] = openLong(writers);
  pairs($("totals"), [
    ["Furthest behind", duration(Math.max(0, ...projections.map((found) => found.lag ?? 0)))],
    ["Backlog", compact(sum("backlog"))],
    ["Rate", `${compact(sum("rate"))}/s`],
    ["Workers", number(alive), alive ? null : "bad"],
    ["Parked", number(sum("parked")), sum("parked") ? "bad" : null],
    ...(oldest ? [["Open transaction", duration(oldest.age), "bad"]] : []),
    ...(dead(seen) ? [["Dead letters", number(dead(seen)), "bad"]] : []),
    ...(setApart ? [["Conditions stopped", number(setApart), "bad"]] : []),
    ...(sent?.dead ? [["Dead webhooks", number(sent.dead), "bad"]] : []),
  ]);
}

/** How many there are of each, and of how many something is wrong. */
function showTabs(seen) {
  const { projections, groups: known, workers, webhooks: sent, quarantined_total: setApart } = seen;
  const troubles = projections.filter((found) => found.trouble).length;
  const counts = {
    overview: [projections.length, troubles],
    rebuilds: [seen.rebuilds.length, seen.rebuilds.filter((one) => !one.led || one.error).length],
    journals: [seen.journals.length, new Set(projections.filter((found) => found.state === "unreachable").map((found) => found.journal)).size],
    groups: [known.length, known.filter((found) => found.dead_total || found.state === "unread").length + setApart],
    webhooks: [sent ? sent.active + sent.paused + sent.disabled : 0, (sent?.failing ?? 0) + (sent?.disabled ?? 0)],
    workers: [workers.filter((worker) => worker.alive).length, openLong(seen.writers).length],
  };
  for (const link of $("tabs").querySelectorAll("a")) {
    const [count, wrong] = counts[link.dataset.tab];
    say(link.children[1], number(count));
    link.children[2].hidden = !wrong;
    say(link.children[2].firstElementChild, number(wrong));
  }
  const wrong = Math.max(troubles, seen.vacancies.length);
  document.title = wrong ? `(${wrong}) Projections monitor` : "Projections monitor";
}

const stream = opened(beside, ({ kind, data }) => takers[kind](data));
addEventListener("hashchange", arrive);
arrive();
setInterval(watch, 1000);
