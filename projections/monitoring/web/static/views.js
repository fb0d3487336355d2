/** Which part of the page is shown: by the address after #, so that it can be kept, sent and gone back to. */

import { $ } from "./actions.js";
import { mark } from "./page.js";

export const VIEWS = ["overview", "projection", "rebuilds", "journals", "groups", "webhooks", "workers"];

/** The address of a projection's page. */
export const addressOf = (name) => `#/projection/${encodeURIComponent(name)}`;

/** The view of the address, and what follows it: a projection's name, or what is filtered for. */
export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  const filter = new URLSearchParams(query).get("q") ?? "";
  if (!VIEWS.includes(view)) return { view: "overview", name: "", filter };
  return { view, name: decoded(rest.join("/")), filter };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Show a view alone, and say which it is. */
export function reveal(view) {
  for (const section of document.querySelectorAll("[data-view]")) section.hidden = section.dataset.view !== view;
  const tab = view === "projection" ? "overview" : view;
  for (const link of $("tabs").querySelectorAll("a")) mark(link, "aria-current", link.dataset.tab === tab ? "page" : null);
}
