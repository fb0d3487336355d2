/** What is done: what buttons ask of the monitor, what it answers, and what is asked before. */

import { mark, say } from "./page.js";

export const $ = (id) => document.getElementById(id);
/** An address beside the page's own; a password in that is left out, for fetch refuses one. */
export const beside = (path) => new URL(path, location.href);

/** Ask the monitor to do something, and say what it answers. */
export async function act(button, action, body) {
  button.disabled = true;
  try {
    const { token } = await (await fetch(beside("session"), { cache: "no-store" })).json();
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": token };
    const answered = await fetch(beside(`actions/${action}`), { method: "POST", headers, body: JSON.stringify(body) });
    const said = await answered.json();
    toast(said.done ?? said.error, !answered.ok);
  } catch (error) {
    toast(`The monitor does not answer: ${error.message}`, true);
  } finally {
    button.disabled = false;
    if (document.activeElement === document.body && button.isConnected) button.focus();
  }
}

/** Ask whether something is to be done that cannot be undone; what the dialog was closed with. */
export function answer({ title, text, keep, go, value }) {
  const dialog = $("confirm");
  say($("confirm-title"), title);
  say($("confirm-text"), text);
  const [cancel, confirm] = dialog.querySelectorAll("button");
  say(cancel, keep);
  say(confirm, go);
  confirm.value = value;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}

let toastTimer = 0;

function toast(text, bad) {
  clearTimeout(toastTimer);
  say($("toast"), text);
  mark($("toast"), "data-bad", bad ? "" : null);
  toastTimer = setTimeout(() => say($("toast"), ""), bad ? 12_000 : 5000);
}
