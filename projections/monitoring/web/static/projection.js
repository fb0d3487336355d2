/** The page of one projection: every slice, what holds it back, its ranges, and what can be done about them. */

import { $, act, beside } from "./actions.js";
import { Chart, ofDurations, ofRates, smooth } from "./chart.js";
import { command } from "./commands.js";
import { HeatMap, slices } from "./heat_map.js";
import { holderOf, ownerOf } from "./owners.js";
import { ago, compact, duration, keep, make, mark, number, pairs, row, say, short } from "./page.js";
import { ParkedSources } from "./parked.js";

const SECONDS_KEPT = 600;
/** Ranges that are listed, the worst first: a thousand lines are for nobody to read. */
const LISTED = 100;

/** Asks for the projection that the address names, and shows it; once for each document that comes. */
export class ProjectionPage {
  /** @returns {string[]} Who holds its ranges, for their letters. */
  get owners() {
    return this.card?.owners ?? [];
  }

  /** Show a projection from now on; null for none. */
  open(name) {
    if (this.card?.name === name) return;
    $("projection-body").replaceChildren();
    this.card = name === null ? null : new Card(name);
    if (!this.card) return;
    say($("projection-said"), "Loading…");
    $("projection-said").hidden = false;
    $("projection-body").append(this.card.article);
    this.follow();
  }

  /** Ask again, unless an answer is still to come. */
  async follow() {
    const { card } = this;
    if (!card || card.asking) return;
    card.asking = true;
    try {
      const since = card.points.at(-1)?.[0] ?? 0;
      const url = beside(`projection?name=${encodeURIComponent(card.name)}&since=${since}`);
      const answered = await fetch(url, { cache: "no-store" });
      const found = await answered.json();
      if (card !== this.card) return;
      this.say(answered.ok ? "" : found.error);
      if (answered.ok) card.show(found);
    } catch (error) {
      if (card === this.card) this.say(`The monitor does not answer: ${error.message}`);
    } finally {
      card.asking = false;
    }
  }

  say(text) {
    say($("projection-said"), text);
    $("projection-said").hidden = !text;
  }
}

class Card {
  constructor(name) {
    this.name = name;
    this.owners = [];
    this.points = [];
    this.article = $("projection").content.firstElementChild.cloneNode(true);
    this.article.hidden = true;
    this.map = new HeatMap(this.article, ownerOf);
    this.lag = new Chart("Lag", ofDurations);
    this.rate = new Chart("Throughput", ofRates);
    this.parked = new ParkedSources(this.find(".parked"), name);
    this.find(".charts").append(this.lag.element, this.rate.element);
    this.find(".toggle").addEventListener("click", () => this.toggle());
    this.find(".rescale").addEventListener("submit", (event) => this.rescale(event));
    this.find(".ranges").addEventListener("toggle", () => this.showRanges());
    this.find(".changes").addEventListener("toggle", () => this.found && this.showChanges());
  }

  find(selector) {
    return this.article.querySelector(selector);
  }

  show(found) {
    const { at } = found;
    [this.found, this.at] = [found, at];
    this.owners = found.ranges.map((part) => part.owner);
    this.points = [...this.points, ...found.points].filter(([time]) => time > at - SECONDS_KEPT);
    this.article.hidden = false;
    say(this.find(".name"), short(found.name));
    say(this.find(".type"), `reads ${found.reads}${found.journal === null ? "" : ` of journal ${found.journal}`}`);
    this.showState();
    this.showStats();
    this.showHolds();
    this.map.show(found, at);
    this.lag.show(this.points.map(([time, lag]) => [time, lag]), at);
    this.rate.show(this.rates(), at);
    this.parked.show(found, at);
    this.showStatements();
    this.showChanges();
    this.showRanges();
  }

  showStatements() {
    const { read_models: models } = this.found;
    this.find(".statements").hidden = !models.length;
    keep(this.find(".statements div"), models, (one) => one.name, makeStatement, (item, one) => {
      say(item.children[0].children[0], one.name);
      say(item.children[0].children[1], `fills ${one.table}`);
      say(item.children[1], dedented(one.text));
    });
  }

  /** How often its slices were cut again, and which ranges were taken over from whom. */
  showChanges() {
    const { changes } = this.found;
    const list = this.find(".changes");
    list.hidden = !changes.length;
    say(list.querySelector("summary"), changes.length === 1 ? "1 change of ranges" : `${number(changes.length)} changes of ranges`);
    if (!list.open) return;
    keep(list.querySelector("tbody"), changes, (one) => `${one.changed_at} ${one.kind} ${one.taken_from}`, () => make("tr"), (line, one) => {
      row(line, [["When", ago(one.changed_at, this.at)], ["What became of its ranges", whatBecame(one)]]);
    });
  }

  rates() {
    return smooth(this.points.map(([time, , rate]) => [time, rate]));
  }

  showState() {
    const { paused, ranges, state, states, name } = this.found;
    mark(this.find(".state"), "data-state", state);
    say(this.find(".state"), states);
    say(this.find(".toggle"), paused ? "Resume" : "Pause");
    mark(this.find(".toggle"), "aria-label", `${paused ? "Resume" : "Pause"} ${name}`);
    mark(this.find(".rescale button"), "aria-label", `Rescale ${name}`);
    const input = this.find("input");
    if (document.activeElement !== input && !input.dataset.asked) input.value = ranges.length;
  }

  showStats() {
    const { lag, backlog, handled, ranges, parked_total: parked, version } = this.found;
    pairs(this.find(".stats"), [
      ["Lag", duration(lag)],
      ["Backlog", number(backlog)],
      ["Throughput", ofRates.words(this.rates().at(-1)?.[1] ?? 0)],
      ["Handled", compact(handled)],
      ["Ranges", number(ranges.length)],
      ["Parked", number(parked), parked ? "bad" : null],
      ["Version", String(version)],
    ]);
  }

  showHolds() {
    const { holds } = this.found;
    this.find(".free").hidden = holds.length > 0;
    keep(this.find(".holds ul"), holds, (one, index) => `${one.cause} ${index}`, makeHold, (item, one) => {
      mark(item, "data-cause", one.cause);
      say(item.text, one.text);
      item.command.show(one.command);
    });
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
    const list = this.find(".ranges");
    say(list.querySelector("summary"), ranges.length === 1 ? "1 range" : `${number(ranges.length)} ranges`);
    if (!list.open) return;
    const listed = ranges.length > LISTED ? [...ranges].sort(worse).slice(0, LISTED) : ranges;
    keep(list.querySelector("tbody"), listed, (part) => part.first, () => make("tr"), (line, part) => this.showRange(line, part));
    const more = list.querySelector(".more");
    more.hidden = listed.length === ranges.length;
    say(more, `and ${number(ranges.length - listed.length)} more, none in greater trouble: projections status --ranges`);
  }

  showRange(line, part) {
    const next = part.assigned_to !== null && part.assigned_to !== part.owner ? ` → ${ownerOf(part.assigned_to).letter}` : "";
    row(line, [
      ["Slices", slices(part)],
      ["State", part.parked ? `${part.state}, ${number(part.parked)} parked`.replace(/^parked, /, "") : part.state, `state-${part.state}`],
      ["Owner", `${holderOf(part)}${next}`],
      ["Lag", duration(part.lag), "number"],
      ["Backlog", number(part.backlog), "number"],
      ["Handled", number(part.handled), "number"],
      ["Last batch", ago(part.handled_at, this.at)],
      ["Epoch", number(part.epoch), "number"],
    ]);
  }
}

const STATES = ["unclaimed", "restarting", "parked", "running", "paused"];
const worse = (one, other) => STATES.indexOf(one.state) - STATES.indexOf(other.state) || other.lag - one.lag || one.first - other.first;

function makeHold() {
  const item = make("li");
  item.text = make("p");
  item.command = command();
  item.append(item.text, item.command);
  return item;
}

function makeStatement() {
  return make("figure", { class: "statement" }, make("figcaption", {}, make("code"), make("span", { class: "quiet" })), make("pre", { tabindex: 0 }));
}

/** A statement without the margin that it has in its class. */
function dedented(text) {
  const lines = text.replace(/^\s*\n|\s+$/g, "").split("\n");
  const margins = lines.filter((line) => line.trim()).map((line) => line.match(/^ */)[0].length);
  const margin = Math.min(...(margins.length > 1 && margins[0] === 0 ? margins.slice(1) : margins), 200);
  return lines.map((line, index) => (index || margins[0] ? line.slice(Math.min(margin, line.match(/^ */)[0].length)) : line)).join("\n");
}

function whatBecame({ kind, ranges, ranges_before: before, taken_from: from, taken_by: by }) {
  const some = ranges === 1 ? "1 range" : `${number(ranges)} ranges`;
  if (kind === "rescaled") return `cut into ${some}, from ${number(before)}`;
  if (kind === "taken by order") return `${some} taken by ${by}, by order (--take-over)`;
  return `${some} taken over by ${by} from ${from}, whose lease had ended`;
}
