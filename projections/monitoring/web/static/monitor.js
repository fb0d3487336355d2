/** The page: takes in one document a second. */

import { ago, clock, compact, duration, keep, make, mark, number, pairs, row, say, short } from "./page.js";
import { $, act, answer, beside } from "./actions.js";
import { Groups } from "./groups.js";
import { Chart, ofDurations, ofRates, smooth } from "./chart.js";
import { HeatMap, level, slices } from "./heat_map.js";
import { opened } from "./stream.js";
import { Webhooks } from "./webhooks.js";

const SECONDS_KEPT = 600;
const COLOURS = 8;
/** Parked sources that are listed before somebody asks for more. */
const FEW = 5;
/** Seconds for which a transaction may be open before it is shown as holding the horizon back. */
const OPEN_LONG = 1;

const histories = new Map();
const letters = new Map();
const cards = new Map();
const groups = new Groups();
const webhooks = new Webhooks();
let shown = null;

/* ---- the connection ---- */

let heardAt = Date.now();

const takers = {
  history: (data) => takeHistory(JSON.parse(data).history),
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
  show(seen);
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

function takeHistory(all) {
  histories.clear();
  for (const [id, points] of Object.entries(all)) histories.set(Number(id), points);
}

function historyOf(found, at) {
  const points = histories.get(found.id) ?? [];
  if (found.point && !(points.at(-1)?.[0] >= found.point[0])) points.push(found.point);
  const kept = points.filter(([time]) => time > at - SECONDS_KEPT);
  histories.set(found.id, kept);
  return kept;
}

function show(seen) {
  nameOwners(seen);
  keep($("projections"), seen.projections, (found) => found.id, makeCard, (_, found) => cards.get(found.id).show(found, seen.at));
  for (const id of cards.keys()) if (!seen.projections.some((found) => found.id === id)) cards.delete(id);
  showEmpty(seen);
  showTotals(seen);
  showJump(seen.projections);
  groups.show(seen);
  webhooks.show(seen);
  showWorkers(seen);
  showWriters(seen.writers);
  if (seen.unreached.length) banner(`Not shown, because the journal cannot be reached: ${seen.unreached.join("; ")}`);
}

/** A letter and a colour for each worker, kept for as long as it is there. */
function nameOwners(seen) {
  const ranges = seen.projections.flatMap((found) => found.ranges);
  const owners = new Set([...seen.workers, ...ranges].map((one) => one.owner).filter((owner) => owner !== null));
  for (const owner of letters.keys()) if (!owners.has(owner)) letters.delete(owner);
  for (const owner of owners) {
    if (letters.has(owner)) continue;
    const used = new Set([...letters.values()].map((one) => one.place));
    let place = 0;
    while (used.has(place)) place += 1;
    letters.set(owner, { place, letter: letterOf(place), colour: place % COLOURS, name: owner.replace(/:[0-9a-f]{8}$/, "") });
  }
}

const letterOf = (place) => String.fromCharCode(65 + (place % 26)) + (place < 26 ? "" : Math.floor(place / 26));
const ownerOf = (owner) => letters.get(owner) ?? { letter: "?", colour: 0, name: owner };

function tag(owner) {
  const { letter, colour } = ownerOf(owner);
  return make("span", { class: "owner", "data-owner": colour }, letter);
}

function showEmpty(seen) {
  const empty = $("projections").querySelector(".empty");
  if (seen.projections.length) empty?.remove();
  else if (!empty) $("projections").append(make("p", { class: "card empty" }, "No projection has run on this database yet."));
}

function showTotals({ projections, workers, groups: known, quarantined_total: setApart, webhooks: sent }) {
  const sum = (name) => projections.reduce((total, found) => total + found[name], 0);
  const alive = workers.filter((worker) => worker.alive).length;
  const dead = known.reduce((total, found) => total + found.dead_total, 0);
  pairs($("totals"), [
    ["Projections", number(projections.length)],
    ["Workers", number(alive), alive ? null : "bad"],
    ["Furthest behind", duration(Math.max(0, ...projections.map((found) => found.lag)))],
    ["Backlog", compact(sum("backlog"))],
    ["Parked", number(sum("parked_total")), sum("parked_total") ? "bad" : null],
    ...(dead ? [["Dead letters", number(dead), "bad"]] : []),
    ...(setApart ? [["Conditions stopped", number(setApart), "bad"]] : []),
    ...(sent?.dead ? [["Dead webhooks", number(sent.dead), "bad"]] : []),
  ]);
}

function showJump(projections) {
  $("jump").hidden = projections.length < 2;
  keep($("jump"), projections, (found) => found.id,
    (found) => make("a", { href: `#projection-${found.id}` }, make("span", { class: "swatch" }), make("span"), make("span", { class: "quiet" })),
    (link, found) => {
      mark(link.children[0], "data-level", level(found.lag));
      say(link.children[1], short(found.name));
      say(link.children[2], found.paused ? "paused" : duration(found.lag));
    });
}

function showWorkers({ workers, at }) {
  $("no-workers").hidden = workers.length > 0;
  $("workers").hidden = !workers.length;
  keep($("workers").tBodies[0], workers, (worker) => worker.owner,
    makeWorker,
    (line, worker) => {
      const state = worker.alive ? (worker.leaving ? "leaving" : "alive") : "gone";
      const lease = worker.lease_until - at;
      row(line, [
        ["Worker", line.tag],
        ["State", state, `state-${state}`],
        ["Host", worker.host],
        ["Process", String(worker.pid)],
        ["Ranges", number(worker.ranges), "number"],
        ["Slices", number(worker.slices), "number"],
        ["Lease", lease > 0 ? `${Math.round(lease)} s left` : `ended ${ago(worker.lease_until, at)}`],
        ["Runs", worker.projections.join(", ")],
      ]);
    });
}

function makeWorker(worker) {
  const line = make("tr");
  line.tag = tag(worker.owner);
  return line;
}

function showWriters(writers) {
  const long = writers.filter((writer) => writer.age >= OPEN_LONG);
  say($("writers-text"), long.length
    ? "Open transactions that have appended: what they may still commit is waited for."
    : "Nothing: no transaction that has appended is open for longer than a second.");
  keep($("writers"), long, (writer) => writer.pid, () => make("li", {}, make("strong"), make("span")), (item, writer) => {
    say(item.children[0], `open for ${duration(writer.age)}`);
    const process = writer.pid === null ? "a prepared transaction" : `process ${writer.pid}`;
    say(item.children[1], `${writer.application_name || "unnamed application"} · ${process}`);
  });
}

/* ---- one projection ---- */

function makeCard(found) {
  const card = new Card(found);
  cards.set(found.id, card);
  return card.article;
}

class Card {
  constructor(found) {
    this.article = $("projection").content.firstElementChild.cloneNode(true);
    this.article.id = `projection-${found.id}`;
    this.map = new HeatMap(this.article, ownerOf);
    this.lag = new Chart("Lag", ofDurations);
    this.rate = new Chart("Throughput", ofRates);
    this.find(".charts").append(this.lag.element, this.rate.element);
    this.find(".toggle").addEventListener("click", () => this.toggle());
    this.find(".rescale").addEventListener("submit", (event) => this.rescale(event));
    this.find(".all").addEventListener("click", () => this.showAll());
    this.find(".ranges").addEventListener("toggle", () => this.showRanges());
  }

  find(selector) {
    return this.article.querySelector(selector);
  }

  show(found, at) {
    [this.found, this.at] = [found, at];
    say(this.find(".name"), short(found.name));
    say(this.find(".type"), `reads ${found.entity_type}`);
    this.showState();
    const points = historyOf(found, at);
    this.showStats(points);
    this.map.show(found, at);
    this.lag.show(points.map(([time, lag]) => [time, lag]), at);
    this.rate.show(smooth(points.map(([time, , rate]) => [time, rate])), at);
    this.showFailures();
    this.showParked();
    this.showRanges();
  }

  showState() {
    const { paused, ranges, name } = this.found;
    const count = (state) => ranges.filter((part) => part.state === state).length;
    const [state, text] = paused ? ["paused", "paused"]
      : count("unclaimed") === ranges.length ? ["unclaimed", "not running"]
      : count("unclaimed") ? ["unclaimed", `${count("unclaimed")} of ${ranges.length} ranges unclaimed`]
      : count("restarting") ? ["restarting", `${count("restarting")} of ${ranges.length} ranges restarting`]
      : ["running", "running"];
    mark(this.find(".state"), "data-state", state);
    say(this.find(".state"), text);
    say(this.find(".toggle"), paused ? "Resume" : "Pause");
    mark(this.find(".toggle"), "aria-label", `${paused ? "Resume" : "Pause"} ${name}`);
    mark(this.find(".rescale button"), "aria-label", `Rescale ${name}`);
    const input = this.find("input");
    if (document.activeElement !== input && !input.dataset.asked) input.value = ranges.length;
  }

  showStats(points) {
    const { lag, backlog, handled, ranges, parked_total: parked } = this.found;
    pairs(this.find(".stats"), [
      ["Lag", duration(lag)],
      ["Backlog", number(backlog)],
      ["Throughput", ofRates.words(smooth(points.map(([time, , rate]) => [time, rate])).at(-1)?.[1] ?? 0)],
      ["Handled", compact(handled)],
      ["Ranges", number(ranges.length)],
      ["Parked", number(parked), parked ? "bad" : null],
    ]);
  }

  showFailures() {
    const failing = this.found.ranges.filter((part) => part.failures && part.error);
    keep(this.find(".failures"), failing.slice(0, 5), (part) => part.first, () => make("li", {}, make("strong"), make("span")), (item, part) => {
      const wait = part.restarts_at > this.at ? `, starts again in ${duration(part.restarts_at - this.at)}` : "";
      say(item.children[0], `Slices ${slices(part)} failed ${part.failures === 1 ? "once" : `${part.failures} times in a row`}${wait}`);
      say(item.children[1], part.error);
    });
  }

  showParked() {
    const { parked, parked_total: total } = this.found;
    const listed = this.all ? parked : parked.slice(0, FEW);
    this.find(".parked").hidden = !parked.length;
    keep(this.find(".parked tbody"), listed, (one) => `${one.source_id} ${one.seq_nr}`, (one) => this.makeParked(one), (line, one) => {
      const tries = `${one.event_type}, ${one.attempts} ${one.attempts === 1 ? "attempt" : "attempts"}`;
      const waiting = one.decision === "waiting";
      say(line.message, one.error);
      line.where.hidden = !one.traceback;
      say(line.traceback, one.traceback ?? "");
      row(line, [
        ["Source", one.source_id, "code"],
        ["Event", `${number(one.seq_nr)} · ${tries}`],
        ["Error", line.error, "error"],
        ["Parked", ago(one.parked_at, this.at)],
        ["Decision", waiting ? line.buttons : one.decision === "drop" ? "to be dropped" : "to be retried"],
      ]);
    });
    this.find(".all").hidden = this.all || parked.length <= FEW;
    say(this.find(".all"), `Show ${number(parked.length - FEW)} more`);
    this.find(".more").hidden = total <= listed.length || !this.find(".all").hidden;
    say(this.find(".more"), `and ${number(total - listed.length)} more: projections parked list ${this.found.name}`);
  }

  showAll() {
    this.all = true;
    this.showParked();
    this.find(`.parked tr:nth-child(${FEW + 1}) button`)?.focus();
  }

  makeParked(one) {
    const line = make("tr");
    const button = (text, kind, ask) => {
      const made = make("button", { type: "button", class: kind, "aria-label": `${text} event ${one.seq_nr} of ${one.source_id}` }, text);
      made.addEventListener("click", ask);
      return made;
    };
    line.message = make("span");
    line.traceback = make("pre");
    line.where = make("details", {}, make("summary", {}, "Where"), line.traceback);
    line.error = make("div", { class: "error" }, line.message, line.where);
    line.buttons = make("div", { class: "buttons" },
      button("Retry", "retry", (event) => act(event.currentTarget, "retry", this.bodyOf(one))),
      button("Drop", "drop danger", (event) => this.drop(event.currentTarget, one)));
    return line;
  }

  bodyOf(one) {
    return { projection: this.found.name, source_id: one.source_id, seq_nr: one.seq_nr };
  }

  async drop(button, one) {
    const text = `${this.found.name} never handles event ${one.seq_nr} (${one.event_type}) of source ${one.source_id}, `
      + "and goes on with the events after it. The journal keeps the event.";
    const asked = { title: "Pass over this event?", text, keep: "Keep waiting", go: "Drop the event", value: "drop" };
    if ((await answer(asked)) === "drop") await act(button, "drop", this.bodyOf(one));
  }

  toggle() {
    act(this.find(".toggle"), this.found.paused ? "resume" : "pause", { projection: this.found.name });
  }

  async rescale(event) {
    event.preventDefault();
    const input = this.find("input");
    input.dataset.asked = "yes";
    await act(this.find(".rescale button"), "rescale", { projection: this.found.name, ranges: input.valueAsNumber });
    delete input.dataset.asked;
  }

  showRanges() {
    if (!this.found) return;
    const { ranges } = this.found;
    say(this.find(".ranges summary"), ranges.length === 1 ? "1 range" : `${number(ranges.length)} ranges`);
    if (!this.find(".ranges").open) return;
    keep(this.find(".ranges tbody"), ranges, (part) => part.first, () => make("tr"), (line, part) => {
      row(line, [
        ["Slices", slices(part)],
        ["State", part.parked && part.state !== "parked" ? `${part.state}, ${part.parked} parked` : part.state === "parked" ? `running, ${part.parked} parked` : part.state, `state-${part.state}`],
        ["Owner", part.owner === null ? "nobody" : `${ownerOf(part.owner).letter} · ${ownerOf(part.owner).name}${part.alive ? "" : " (gone)"}`],
        ["Lag", duration(part.lag), "number"],
        ["Backlog", number(part.backlog), "number"],
        ["Handled", number(part.handled), "number"],
        ["Last batch", ago(part.handled_at, this.at)],
        ["Epoch", number(part.epoch), "number"],
      ]);
    });
  }
}

const stream = opened(beside, ({ kind, data }) => takers[kind](data));
setInterval(watch, 1000);
