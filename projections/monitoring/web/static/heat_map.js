/** The 1,024 slices of a projection: 32 rows of 32, coloured by lag, with the ranges and who holds them. */

import { ago, draw, duration, expand, make, mark, number, pairs, say } from "./page.js";

const SIDE = 32;
const SLICES = SIDE * SIDE;

/** Where each colour begins, in seconds; 0 is for slices with nothing to do. */
const LEVELS = [
  [0, "none"],
  [1e-9, "under 1 s"],
  [1, "1 to 10 s"],
  [10, "10 to 60 s"],
  [60, "1 to 10 min"],
  [600, "10 to 60 min"],
  [3600, "over 1 h"],
];
const STATES = [
  ["unclaimed", "unclaimed"],
  ["paused", "paused"],
  ["restarting", "restarting"],
  ["parked", "parked sources"],
];
const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: SIDE, ArrowUp: -SIDE, PageDown: 8 * SIDE, PageUp: -8 * SIDE };

/** Which colour a lag has: 0 to 6. */
export const level = (lag) => LEVELS.findLastIndex(([from]) => lag >= from);

/** A range's slices for people. */
export const slices = (part) => (part.first === part.last ? `${part.first}` : `${part.first} to ${part.last}`);

export class HeatMap {
  /** @param {HTMLElement} article The projection's card. @param {(owner) => object} owners Letter and colour of a worker. */
  constructor(article, owners) {
    const find = (selector) => article.querySelector(selector);
    [this.grid, this.strip, this.detail] = [find(".grid"), find(".owners"), find(".detail")];
    this.outlines = find(".outlines").querySelectorAll("path");
    this.owners = owners;
    this.current = 0;
    this.cut = "";
    this.cells = this.#makeCells();
    this.#makeAxis(find(".axis"));
    this.#makeLegend(find(".legend"));
    this.#listen();
  }

  /** Show a projection as of a time. */
  show(found, at) {
    this.found = found;
    this.at = at;
    const columns = Object.entries(found.slices).map(([name, runs]) => [name, expand(runs)]);
    this.slices = Object.fromEntries(columns);
    this.rangeOf = found.ranges.flatMap((part) => Array(part.last - part.first + 1).fill(part));
    mark(this.grid, "aria-label", `Slices of ${found.name} by lag`);
    this.cells.forEach((cell, slice) => this.#showCell(cell, slice));
    this.#showRanges(found.ranges);
    this.#showDetail();
  }

  #makeCells() {
    const cells = [];
    for (let line = 0; line < SIDE; line += 1) {
      const row = make("div", { role: "row", "aria-rowindex": line + 1 });
      for (let column = 0; column < SIDE; column += 1) {
        const attributes = { role: "gridcell", "aria-colindex": column + 1, tabindex: cells.length ? -1 : 0 };
        cells.push(make("div", attributes));
        row.append(cells.at(-1));
      }
      this.grid.append(row);
    }
    return cells;
  }

  #makeAxis(axis) {
    for (let first = 0; first < SLICES; first += 4 * SIDE) axis.append(make("span", {}, String(first)));
  }

  #makeLegend(legend) {
    const swatch = (attributes, text) => make("li", {}, make("span", { class: "swatch", ...attributes }), text);
    const levels = LEVELS.map(([, text], index) => swatch({ "data-level": index }, text));
    const states = STATES.map(([state, text]) => swatch({ "data-level": 0, "data-state": state }, text));
    legend.append(
      make("p", {}, "Lag"), make("ul", { class: "levels" }, ...levels),
      make("p", {}, "Marks"), make("ul", {}, ...states),
    );
  }

  #listen() {
    const sliceOf = (event) => this.cells.indexOf(event.target.closest("[role=gridcell]"));
    this.grid.addEventListener("pointerover", (event) => this.#hover(sliceOf(event)));
    this.grid.addEventListener("pointerleave", () => this.#hover(-1));
    this.grid.addEventListener("pointerdown", (event) => this.#goTo(sliceOf(event)));
    this.grid.addEventListener("focusin", (event) => this.#select(sliceOf(event)));
    this.grid.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const row = this.current - (this.current % SIDE);
    const to = {
      Home: event.ctrlKey ? 0 : row,
      End: event.ctrlKey ? SLICES - 1 : row + SIDE - 1,
    }[event.key] ?? this.current + (STEPS[event.key] ?? NaN);
    if (Number.isNaN(to)) return;
    event.preventDefault();
    if (to >= 0 && to < SLICES) this.#goTo(to);
  }

  #goTo(slice) {
    if (slice >= 0) this.cells[slice].focus();
  }

  #select(slice) {
    if (slice < 0) return;
    this.cells[this.current].tabIndex = -1;
    this.current = slice;
    this.cells[slice].tabIndex = 0;
    this.chosen = true;
    this.hovered = undefined;
    this.#showDetail();
  }

  #hover(slice) {
    this.hovered = slice < 0 ? undefined : slice;
    this.#showDetail();
  }

  #showCell(cell, slice) {
    const { lag, state, parked } = this.slices;
    const of = level(lag[slice]);
    mark(cell, "data-level", of);
    mark(cell, "data-state", state[slice]);
    mark(cell, "data-parked", parked[slice] ? "" : null);
    mark(cell, "aria-label", this.#label(slice, LEVELS[of][1]));
  }

  /** Says the same as colour, mark and outline do; changes seldom, for what a reader reads out is not to flicker. */
  #label(slice, lag) {
    const part = this.rangeOf[slice];
    const parked = this.slices.parked[slice];
    const waiting = parked ? `, ${parked} parked` : "";
    const owner = part.owner === null ? "no owner" : `worker ${this.owners(part.owner).letter}`;
    return `Slice ${slice}: lag ${lag}, ${this.slices.state[slice]}${waiting}, range ${slices(part)}, ${owner}`;
  }

  #showRanges(ranges) {
    const cut = JSON.stringify(ranges.map((part) => [part.first, part.alive && this.owners(part.owner).letter]));
    if (cut === this.cut) return;
    this.cut = cut;
    const path = outline(ranges);
    for (const line of this.outlines) line.setAttribute("d", path);
    this.strip.replaceChildren(...ranges.map((part) => this.#stretch(part)));
  }

  /** A range in the strip beside the map, which stands for 0 to 1,023 from top to bottom. */
  #stretch(part) {
    const size = part.last - part.first + 1;
    const stretch = make("div", { class: "stretch" });
    stretch.style.top = `${(100 * part.first) / SLICES}%`;
    stretch.style.height = `${(100 * size) / SLICES}%`;
    if (!part.alive) return stretch;
    const { letter, colour } = this.owners(part.owner);
    stretch.dataset.owner = colour;
    if (size >= 2 * SIDE) stretch.append(letter);
    return stretch;
  }

  /** The slice under the pointer, else the one that was chosen, else the one that is furthest behind. */
  #showDetail() {
    if (!this.slices) return;
    const furthest = this.slices.lag.indexOf(Math.max(...this.slices.lag));
    const slice = this.hovered ?? (this.chosen ? this.current : furthest);
    const why = this.hovered !== undefined ? "under the pointer" : this.chosen ? "chosen" : "furthest behind";
    say(this.detail.querySelector("h3"), `Slice ${slice}`);
    say(this.detail.querySelector("p"), this.slices.lag[slice] > 0 || why !== "furthest behind" ? why : "nothing is behind");
    pairs(this.detail.querySelector("dl"), this.#facts(slice));
    this.cells.forEach((cell, index) => mark(cell, "data-shown", index === slice ? "" : null));
  }

  #facts(slice) {
    const part = this.rangeOf[slice];
    const { lag, backlog, state, parked } = this.slices;
    const facts = [
      ["State", state[slice]],
      ["Lag", duration(lag[slice])],
      ["Backlog", `${number(backlog[slice])} ${backlog[slice] === 1 ? "event" : "events"}`],
      ["Range", slices(part)],
      ["Owner", this.#owner(part)],
      ["Epoch", number(part.epoch)],
      ["Last batch", ago(part.handled_at, this.at)],
      ["Parked", parked[slice] ? `${number(parked[slice])} ${parked[slice] === 1 ? "source" : "sources"}` : "none"],
      ["Held back by", this.#causes(slice)],
    ];
    return part.error && part.failures ? [...facts, ["Error", part.error, "long"]] : facts;
  }

  /** What of all that holds the projection back concerns a slice. */
  #causes(slice) {
    const held = this.found.holds.filter(({ cause, slices: all }) =>
      cause === "parked" ? this.slices.parked[slice] : all.some(([first, last]) => first <= slice && slice <= last));
    return held.map((one) => one.cause).join(", ") || "nothing";
  }

  #owner(part) {
    if (part.owner === null) return "nobody";
    const { letter, name } = this.owners(part.owner);
    return `${letter} · ${name}${part.alive ? "" : " (gone)"}`;
  }
}

/** The lines between ranges, in row-major order, and the frame around all. */
function outline(ranges) {
  const lines = [`M0 0H${SIDE}V${SIDE}H0Z`];
  for (const { first } of ranges.slice(1)) {
    const [line, column] = [Math.floor(first / SIDE), first % SIDE];
    lines.push(column ? `M${SIDE} ${line}H${column}V${line + 1}H0` : `M0 ${line}H${SIDE}`);
  }
  return lines.join("");
}
