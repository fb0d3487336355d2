/** A letter and a colour for each worker, kept for as long as it is there. */

import { make } from "./page.js";

const COLOURS = 8;
const letters = new Map();

/** Take in who there is; who is gone gives its letter back. */
export function nameOwners(names) {
  const owners = new Set(names.filter((owner) => owner !== null));
  for (const owner of letters.keys()) if (!owners.has(owner)) letters.delete(owner);
  const used = new Set([...letters.values()].map((one) => one.place));
  let place = 0;
  for (const owner of owners) {
    if (letters.has(owner)) continue;
    while (used.has(place)) place += 1;
    used.add(place);
    letters.set(owner, { place, letter: letterOf(place), colour: place % COLOURS, name: owner.replace(/:[0-9a-f]{8}$/, "") });
  }
}

const letterOf = (place) => String.fromCharCode(65 + (place % 26)) + (place < 26 ? "" : Math.floor(place / 26));

export const ownerOf = (owner) => letters.get(owner) ?? { letter: "?", colour: 0, name: owner };

/** Who holds a range, in words. */
export function holderOf(part) {
  if (part.owner === null) return "nobody";
  const { letter, name } = ownerOf(part.owner);
  return `${letter} · ${name}${part.alive ? "" : " (gone)"}`;
}

/** The letter in its colour. */
export function tag(owner) {
  const { letter, colour } = ownerOf(owner);
  return make("span", { class: "owner", "data-owner": colour }, letter);
}
