/** A small line chart of the last ten minutes. */

import { clock, compact, draw, duration, make, mark, say } from "./page.js";

const [WIDTH, HEIGHT, SECONDS] = [600, 100, 600];
/** Seconds without a point that are a gap in the line: idle monitors look every ten. */
const GAP = 25;

export class Chart {
  /** @param {string} title What is drawn. @param {{words, top}} kind How values are said, and where the axis ends. */
  constructor(title, kind) {
    this.title = title;
    this.words = kind.words;
    this.top = kind.top;
    this.now = make("strong");
    this.most = make("span", { class: "most" });
    this.moment = make("span", { class: "quiet" });
    this.area = draw("path", { class: "area" });
    this.line = draw("path", { class: "line" });
    this.hair = draw("path", { class: "hair" });
    this.svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    const rules = draw("path", { class: "rules", d: `M0 0H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT}H${WIDTH}` });
    this.svg.append(rules, this.area, this.line, this.hair);
    const times = make("div", { class: "times", "aria-hidden": "true" }, make("span", {}, "10 min ago"), make("span", {}, "5 min"), make("span", {}, "now"));
    this.element = make("figure", { class: "chart" },
      make("figcaption", {}, make("span", {}, title), this.now, this.moment),
      make("div", { class: "plot" }, this.svg, this.most), times);
    this.svg.addEventListener("pointermove", (event) => this.#point(event.offsetX / this.svg.clientWidth));
    this.svg.addEventListener("pointerleave", () => this.#point(null));
  }

  /** Draw [time, value] points up to a time. */
  show(points, at) {
    [this.points, this.at] = [points, at];
    const values = points.map(([, value]) => value);
    const most = this.top(Math.max(...values, 0));
    this.place = ([time, value]) => [WIDTH * (1 - (at - time) / SECONDS), HEIGHT * (1 - value / most)];
    const stretches = unbroken(points).map((stretch) => stretch.map(this.place));
    mark(this.line, "d", stretches.map(path).join(""));
    mark(this.area, "d", stretches.map(filled).join(""));
    say(this.most, this.words(most));
    const last = values.at(-1) ?? 0;
    const summary = `now ${this.words(last)}, highest ${this.words(Math.max(...values, 0))}`;
    mark(this.svg, "aria-label", `${this.title} over the last 10 minutes: ${summary}`);
    this.#say();
  }

  #point(share) {
    this.share = share;
    this.#say();
  }

  /** The value under the pointer, else the newest. */
  #say() {
    const points = this.points ?? [];
    if (this.share == null || !points.length) {
      say(this.now, this.words(points.at(-1)?.[1] ?? 0));
      say(this.moment, "");
      mark(this.hair, "d", "");
      return;
    }
    const time = this.at - SECONDS * (1 - this.share);
    const nearest = points.reduce((a, b) => (Math.abs(b[0] - time) < Math.abs(a[0] - time) ? b : a));
    say(this.now, this.words(nearest[1]));
    say(this.moment, clock(nearest[0]));
    mark(this.hair, "d", `M${this.place(nearest)[0].toFixed(1)} 0V${HEIGHT}`);
  }
}

const path = (places) => `M${places.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
const filled = (places) => `${path(places)}L${places.at(-1)[0].toFixed(1)} ${HEIGHT}L${places[0][0].toFixed(1)} ${HEIGHT}Z`;

/** The points, cut where nothing was known for a while. */
function unbroken(points) {
  const stretches = [];
  points.forEach((point, index) => {
    if (!index || point[0] - points[index - 1][0] > GAP) stretches.push([]);
    stretches.at(-1).push(point);
  });
  return stretches;
}

/** 1, 2 or 5 times a power of ten, at or above a value. */
function round(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((times) => times * power).find((top) => top >= value);
}

const ROUND_TIMES = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21_600, 43_200, 86_400];

/** How durations are said, and where their axis ends. */
export const ofDurations = {
  words: duration,
  top: (value) => ROUND_TIMES.find((top) => top >= value) ?? 86_400 * round(value / 86_400),
};

/** The same for events a second. */
export const ofRates = { words: (value) => `${compact(value)}/s`, top: round };

/** Each value as the mean of the five seconds before it: batches commit in bursts. */
export function smooth(points) {
  return points.map(([time], index) => {
    let [sum, from] = [0, index];
    while (from >= 0 && points[from][0] > time - 5) sum += points[from--][1];
    return [time, sum / (index - from)];
  });
}
