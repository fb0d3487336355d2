/** A shared worker: the one connection to the monitor that all tabs of a browser have. */

import { Stream } from "./stream.js";

const tabs = new Set();
const stream = new Stream(new URL("../events", location.href), (said) => {
  for (const tab of tabs) tab.postMessage(said);
});

/** A tab that comes makes the stream begin again: it is told the newest document, and nothing has to be kept for it. */
function heard(tab, asked) {
  if (asked === "open") {
    tabs.add(tab);
    stream.open();
    return;
  }
  tabs.delete(tab);
  if (!tabs.size) stream.close();
}

addEventListener("connect", ({ ports: [tab] }) => {
  tab.onmessage = ({ data }) => heard(tab, data);
});
