/** All projections, a line each: those with trouble first, to be filtered and folded. */

import { $ } from "./actions.js";
import { level } from "./heat_map.js";
import { compact, duration, keep, make, mark, number, row, say, short } from "./page.js";
import { addressOf, place } from "./views.js";

/** States as the database tells them, the worst first. */
const STATES = ["unreachable", "unclaimed", "restarting", "parked", "paused", "running"];
const PARTS = [
  ["trouble", "Needs attention"],
  ["paused", "Paused"],
  ["running", "Running"],
  ["internal", "Internal"],
];
const COLUMNS = 9;
const FOLDED = "projections-monitor-folded";

/** Which part of the list a projection is in: what this library runs for itself stands apart. */
function partOf({ internal, trouble, state }) {
  if (internal) return "internal";
  return trouble ? "trouble" : state === "paused" ? "paused" : "running";
}

/** By state and colour, then by name: a lag that grows by a second moves nothing. */
function compare(one, other) {
  return STATES.indexOf(one.state) - STATES.indexOf(other.state)
    || level(other.lag ?? 0) - level(one.lag ?? 0)
    || one.name.localeCompare(other.name);
}

export class Overview {
  constructor() {
    this.folded = new Set(remembered());
    this.wanted = null;
    this.bodies = new Map(PARTS.map(([part, title]) => [part, this.makePart(part, title)]));
    $("filter").value = place().filter;
    $("filter").addEventListener("input", () => this.filter());
    $("filter").addEventListener("keydown", (event) => event.key === "Escape" && this.clear());
    document.addEventListener("keydown", (event) => this.key(event));
  }

  show({ projections }) {
    this.projections = projections;
    this.showStates();
    this.showLines();
  }

  /** Shown, or left and come back to: the address says what is filtered for. */
  arrive() {
    const { filter } = place();
    if ($("filter").value !== filter) $("filter").value = filter;
    if (this.projections) this.showLines();
  }

  makePart(part, title) {
    const toggle = make("button", { type: "button", class: "fold", "aria-controls": `part-${part}` }, make("span"), " ", make("span", { class: "quiet" }));
    const head = make("tbody", { class: "part" }, make("tr", {}, make("th", { colspan: COLUMNS, scope: "rowgroup" }, toggle)));
    const body = make("tbody", { id: `part-${part}`, class: "lines" });
    say(toggle.firstElementChild, title);
    toggle.addEventListener("click", () => {
      if (!this.folded.delete(part)) this.folded.add(part);
      remember(this.folded);
      this.showLines();
    });
    $("overview-table").append(head, body);
    return { head, body, toggle };
  }

  /** How many projections are in each state: a button for each shows those alone. */
  showStates() {
    const counts = STATES.map((state) => [state, this.projections.filter((found) => found.state === state).length]);
    const there = counts.filter(([state, count]) => count || state === this.wanted);
    keep($("states"), there, ([state]) => state, ([state]) => this.makeState(state), (button, [state, count]) => {
      mark(button, "aria-pressed", String(this.wanted === state));
      say(button.children[0], number(count));
    });
  }

  makeState(state) {
    const button = make("button", { type: "button", class: "badge", "data-state": state }, make("strong"), make("span", {}, ` ${state}`));
    button.addEventListener("click", () => {
      this.wanted = this.wanted === state ? null : state;
      this.showStates();
      this.showLines();
    });
    return button;
  }

  showLines() {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const filtered = words.length > 0 || this.wanted !== null;
    const fits = (found) => {
      const text = `${found.name} ${found.states} ${found.reads ?? ""} ${found.journal ?? ""} ${found.mode ?? ""}`.toLowerCase();
      return (this.wanted === null || found.state === this.wanted) && words.every((word) => text.includes(word));
    };
    const found = this.projections.filter(fits).sort(compare);
    for (const [part] of PARTS) this.showPart(part, found.filter((one) => partOf(one) === part), filtered);
    $("overview-table").hidden = !found.length;
    $("nothing-fits").hidden = found.length > 0;
    say($("nothing-fits"), this.projections.length ? "No projection fits the filter." : "No projection has run on this database yet.");
    say($("filter-count"), filtered ? `${number(found.length)} of ${number(this.projections.length)} shown` : "");
  }

  /** What is filtered for is shown, folded or not. */
  showPart(part, found, filtered) {
    const { head, body, toggle } = this.bodies.get(part);
    const open = filtered || !this.folded.has(part);
    const worry = part === "internal" ? found.filter((one) => one.trouble).length : 0;
    head.hidden = !found.length;
    body.hidden = !found.length || !open;
    mark(toggle, "aria-expanded", String(open));
    say(toggle.lastElementChild, worry ? `${number(found.length)}, ${number(worry)} in trouble` : number(found.length));
    keep(body, open ? found : [], (one) => one.name, makeLine, showLine);
  }

  filter() {
    const text = $("filter").value;
    history.replaceState(null, "", text ? `#/?q=${encodeURIComponent(text)}` : "#/");
    this.showLines();
  }

  clear() {
    $("filter").value = "";
    this.wanted = null;
    this.filter();
    this.showStates();
  }

  /** As in many places, / goes to what searches. */
  key(event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || place().view !== "overview") return;
    if (event.target.closest("input, textarea, dialog")) return;
    event.preventDefault();
    $("filter").focus();
  }
}

function makeLine({ name }) {
  const line = make("tr");
  line.link = make("a", { href: addressOf(name) }, short(name));
  line.badge = make("span", { class: "badge" });
  line.lag = make("span", { class: "lag" }, make("span", { class: "swatch" }), make("span"));
  return line;
}

function showLine(line, found) {
  mark(line.badge, "data-state", found.state);
  say(line.badge, found.states);
  mark(line.badge, "title", found.reason ?? null);
  const known = found.lag !== undefined;
  mark(line.lag.firstElementChild, "data-level", known ? level(found.lag) : null);
  say(line.lag.lastElementChild, known ? duration(found.lag) : "unknown");
  row(line, [
    ["Projection", line.link, "title"],
    ["State", line.badge, "state"],
    ["Lag", line.lag, found.lag === 0 ? "number lags none" : "number lags"],
    amount("Backlog", found.backlog, compact),
    amount("Rate", found.rate, (rate) => `${compact(rate)}/s`),
    amount("Workers", found.workers, number),
    amount("Ranges", found.ranges, number),
    amount("Parked", found.parked, number, "bad"),
    ["Version", found.mode === "inline" ? `${found.version} inline` : String(found.version ?? "–"), "number"],
  ]);
}

/** What is nothing stands back, and what is not known is a dash. */
function amount(name, value, words, kind = "") {
  return value ? [name, words(value), `number ${kind}`.trim()] : [name, value === undefined ? "–" : words(value), "number none"];
}

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(FOLDED)) ?? ["internal"];
  } catch {
    return ["internal"];
  }
}

function remember(folded) {
  try {
    localStorage.setItem(FOLDED, JSON.stringify([...folded]));
  } catch { /* a browser may keep nothing for a page */ }
}
