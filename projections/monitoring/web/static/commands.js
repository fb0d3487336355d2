/** Commands to copy: as a shell reads them, whatever the names of projections and sources are. */

import { make, mark, say, seen } from "./page.js";

const PLAIN = /^[\w@%+=:,./][\w@%+=:,./-]*$/;

/** Words as a line for a shell; null where one of them could not be copied as it is seen. */
export function line(words) {
  if (words.some((word) => seen(word) !== word)) return null;
  return words.map((word) => (PLAIN.test(word) || /^--[\w-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}

/** An element that shows a command, with a button that copies it where the browser lets a page do so. */
export function command() {
  const code = make("code");
  const copy = make("button", { type: "button", class: "copy" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    say(copy, "Copied");
    setTimeout(() => say(copy, "Copy"), 1500);
  });
  copy.hidden = !navigator.clipboard;
  const element = make("span", { class: "command" }, code, copy);
  element.show = (words) => {
    const text = words.length ? line(words) : null;
    element.hidden = text === null;
    if (text === null || code.textContent === text) return;
    code.textContent = text;
    mark(copy, "aria-label", `Copy: ${text}`);
  };
  return element;
}
