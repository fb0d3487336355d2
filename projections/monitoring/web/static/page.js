/** Words, numbers and elements: everything from outside becomes text, never markup. */

const count = new Intl.NumberFormat("en");
const rounded = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** 12,345 */
export const number = (value) => count.format(value);

/** 1.2M where the whole number would not fit; 0 to 9,999 as they are. */
export const compact = (value) => (value < 10_000 ? count.format(Math.round(value)) : rounded.format(value));

/** Seconds for people: 0.4 s, 12 s, 4 min 12 s, 3 h 12 min, 2 d 3 h. */
export function duration(seconds) {
  const two = (big, bigName, small, smallName) => (small ? `${big} ${bigName} ${small} ${smallName}` : `${big} ${bigName}`);
  const whole = Math.round(seconds);
  if (seconds <= 0) return "0 s";
  if (seconds < 0.995) return seconds < 0.01 ? "< 0.01 s" : `${seconds.toFixed(2)} s`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return two(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

/** How long ago a time of the database is. */
export const ago = (time, now) => (time === null ? "never" : `${duration(Math.max(now - time, 0))} ago`);

/** 12:03:44, as the reader's clock shows it. */
export const clock = (time) => new Date(time * 1000).toLocaleTimeString("en-GB");

/** What cannot be seen, or moves what stands around it: controls, marks of direction, separators, what has no width. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

/** A text of somebody's data, with what cannot be seen written out; lines stay where lines are wanted. */
export const seen = (text, lines = false) => String(text).replace(UNSEEN, (found) =>
  (lines && found === "\n" ? found : `\\u{${found.codePointAt(0).toString(16)}}`));

/** A name at a length that leaves room for others. */
export const short = (text) => (text.length > LONGEST ? `${[...text].slice(0, LONGEST).join("")}…` : text);
const LONGEST = 100;

/** Write a text where it has changed. */
export function say(element, text) {
  const wanted = seen(text, element.closest("pre, .error") !== null);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Set an attribute where it has changed; null removes it. */
export function mark(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== seen(value)) element.setAttribute(name, seen(value));
}

/** An element with attributes and children; strings become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, seen(value));
  element.append(...children.map((child) => (child instanceof Node ? child : seen(child))));
  return element;
}

/** The same for SVG. */
export function draw(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/**
 * Keep one child for each item: those that stay are updated in place, so that focus and scroll stay too.
 * The child of a key is made once, by `create`, and told each time, by `update`.
 */
export function keep(parent, items, key, create, update) {
  const before = (parent.kept ??= new Map());
  const after = new Map();
  const focused = document.activeElement;
  for (const [index, item] of items.entries()) {
    const id = key(item, index);
    const child = before.get(id) ?? create(item);
    before.delete(id);
    after.set(id, child);
    update(child, item);
  }
  for (const child of before.values()) child.remove();
  let place = parent.firstElementChild;
  for (const child of after.values()) {
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  parent.kept = after;
  // What moves loses the focus.
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/** Pairs of a name and a value, in a <dl>; a value that is an element is put in as it is. */
export function pairs(list, entries) {
  keep(
    list,
    entries,
    ([name]) => name,
    ([name]) => make("div", {}, make("dt", {}, name), make("dd")),
    (child, [, value, kind]) => {
      const cell = child.lastElementChild;
      if (value instanceof Node) cell.replaceChildren(value);
      else say(cell, value);
      mark(child, "data-kind", kind ?? null);
    },
  );
}

/** A table's row: cells are texts or elements, each with its column's name for narrow screens. */
export function row(element, cells) {
  while (element.cells.length < cells.length) element.insertCell();
  cells.forEach(([name, value, kind], index) => {
    const cell = element.cells[index];
    mark(cell, "data-label", name);
    mark(cell, "class", kind ?? null);
    if (!(value instanceof Node)) say(cell, kind === "name" || kind === "code" ? short(String(value)) : value);
    else if (cell.firstChild !== value) cell.replaceChildren(value);
  });
}

/** [value, count, value, count, …] as one value for each slice. */
export function expand(runs) {
  const values = [];
  for (let index = 0; index < runs.length; index += 2) {
    for (let times = runs[index + 1]; times > 0; times -= 1) values.push(runs[index]);
  }
  return values;
}
