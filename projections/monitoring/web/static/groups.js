/** Groups of consumers: how far they are, what their handlers gave up, and conditions that are stopped. */

import { $, act, answer } from "./actions.js";
import { slices } from "./heat_map.js";
import { ago, duration, keep, make, number, row, say } from "./page.js";

const button = (text, label, kind, ask) => {
  const made = make("button", { type: "button", class: kind, "aria-label": label }, text);
  made.addEventListener("click", () => ask(made));
  return made;
};

export class Groups {
  constructor() {
    $("group-ranges").addEventListener("toggle", () => this.showRanges());
  }

  show({ groups, quarantined, quarantined_total: total, unmatched, at }) {
    [this.groups, this.at] = [groups, at];
    $("groups").hidden = !groups.length && !quarantined.length;
    $("no-groups").hidden = !$("groups").hidden;
    $("groups-table").hidden = !groups.length;
    keep($("groups-table").tBodies[0], groups, (found) => found.id, (found) => this.makeGroup(found), (line, found) => this.showGroup(line, found));
    $("unmatched").hidden = !unmatched.length;
    say($("unmatched"), `Nobody has matched events of ${unmatched.join(", ")} yet: start projections worker --subscriptions.`);
    this.showDead();
    this.showQuarantined(quarantined, total);
    this.showRanges();
  }

  makeGroup({ name }) {
    const line = make("tr");
    const input = make("input", { type: "number", name: "ranges", min: "1", max: "1024", step: "1", required: "", "aria-label": `Ranges of ${name}` });
    const rescale = make("button", { "aria-label": `Rescale ${name}` }, "Rescale");
    line.form = make("form", { class: "rescale" }, input, rescale);
    line.form.addEventListener("submit", async (event) => {
      event.preventDefault();
      input.dataset.asked = "yes";
      await act(rescale, "rescale-group", { group: line.found.name, ranges: input.valueAsNumber });
      delete input.dataset.asked;
    });
    return line;
  }

  showGroup(line, found) {
    line.found = found;
    const { ranges, readers, reliable, dead_total: dead } = found;
    const input = line.form.firstElementChild;
    if (document.activeElement !== input && !input.dataset.asked) input.value = ranges.length;
    row(line, [
      ["Group", found.name, "name"],
      ["State", this.stateOf(found), `state-${found.state.replace(" ", "-")}`],
      ["Readers", reliable ? number(readers.length) : "–", "number"],
      ["Lag", duration(found.lag), "number"],
      ["Backlog", number(found.backlog), "number"],
      ["Retries", number(found.retries), "number"],
      ["Dead", number(dead), dead ? "number bad" : "number"],
      ["Ranges", reliable ? line.form : "–"],
    ]);
  }

  /** How far one is that catches up; unread, or how many of several ranges are; or what else it is. */
  stateOf({ state, ranges, catching_up: past, caught_up_to: until, remaining }) {
    if (past) {
      const left = remaining === null ? "" : `, about ${duration(remaining)} left`;
      return `${state}: ${until === null ? "has looked at nothing yet" : `up to ${ago(until, this.at)}`}${left}`;
    }
    const unread = ranges.filter((part) => part.state === "unread").length;
    return unread && unread < ranges.length ? `${unread} of ${ranges.length} ranges unread` : state;
  }

  showDead() {
    const dead = this.groups.flatMap((found) => found.dead.map((one) => ({ ...one, group: found.name })));
    $("dead").hidden = !dead.length;
    keep($("dead-table").tBodies[0], dead, (one) => one.id, (one) => this.makeDead(one), (line, one) => {
      const tries = `${one.attempts} ${one.attempts === 1 ? "attempt" : "attempts"}`;
      row(line, [
        ["Group", one.group, "name"],
        ["Batch", `${one.id} · ${number(one.events)} ${one.events === 1 ? "event" : "events"}`],
        ["Handler", `${one.handler} · ${tries}`],
        ["Error", one.error, "error"],
        ["Failed", ago(one.failed_at, this.at)],
        ["Decision", line.buttons],
      ]);
    });
    const more = this.groups.filter((found) => found.dead_total > found.dead.length);
    $("more-dead").hidden = !more.length;
    say($("more-dead"), more.map((found) =>
      `and ${number(found.dead_total - found.dead.length)} more of ${found.name}: projections groups dead list ${found.name}`).join("; "));
  }

  makeDead({ id, group, handler, events }) {
    const line = make("tr");
    const body = { group, retry_id: id };
    line.buttons = make("div", { class: "buttons" },
      button("Retry", `Retry dead letter ${id} of ${group}`, "retry", (made) => act(made, "retry-dead-letter", body)),
      button("Drop", `Drop dead letter ${id} of ${group}`, "drop danger", async (made) => {
        const what = events === 1 ? "1 event" : `${number(events)} events`;
        const text = `The handler ${handler} of ${group} never gets the ${what} of dead letter ${id} again. The journal keeps them.`;
        const asked = { title: "Drop this dead letter?", text, keep: "Keep it", go: "Drop it", value: "drop" };
        if ((await answer(asked)) === "drop") await act(made, "drop-dead-letter", body);
      }));
    return line;
  }

  showQuarantined(quarantined, total) {
    $("quarantined").hidden = !quarantined.length;
    keep($("quarantined-table").tBodies[0], quarantined, (one) => one.id, (one) => this.makeQuarantined(one), (line, one) => {
      row(line, [
        ["Condition", one.sql, "error"],
        ["Error", one.error, "error"],
        ["Of", `${one.groups.join(", ") || "nobody"} · ${number(one.subscriptions)} ${one.subscriptions === 1 ? "subscription" : "subscriptions"}`],
        ["Since", ago(one.since, this.at)],
        ["Decision", line.release],
      ]);
    });
    $("more-quarantined").hidden = total <= quarantined.length;
    say($("more-quarantined"), `and ${number(total - quarantined.length)} more: projections subscriptions`);
  }

  makeQuarantined({ id }) {
    const line = make("tr");
    line.release = button("Release", `Release condition ${id}`, "release", (made) => act(made, "release", { condition_id: id }));
    return line;
  }

  showRanges() {
    if (!this.groups) return;
    // Listeners hold none.
    const all = this.groups.filter((found) => found.reliable)
      .flatMap((found) => found.ranges.map((part) => ({ ...part, group: found.name, key: `${found.id} ${part.first} ${part.handler ?? ""}` })));
    const without = this.groups.reduce((sum, found) => sum + found.without_reader, 0);
    $("group-ranges").hidden = !all.length;
    say($("group-ranges").firstElementChild, `${all.length === 1 ? "1 range" : `${number(all.length)} ranges`}, ${number(without)} without a reader`);
    if (!$("group-ranges").open) return;
    keep($("group-ranges-table").tBodies[0], all, (part) => part.key, () => make("tr"), (line, part) => {
      row(line, [
        ["Group", part.group, "name"],
        ["Slices", part.handler === null ? slices(part) : `${slices(part)} of handler ${part.handler}`],
        ["State", part.state, `state-${part.state}`],
        ["Reader", part.owner === null ? "nobody" : `${part.owner}${part.alive ? "" : " (gone)"}`],
        ["Lag", duration(part.lag), "number"],
        ["Backlog", number(part.backlog), "number"],
        ["Cursor", number(part.cursor), "number"],
        ["Moved", ago(part.moved_at, this.at)],
        ["Epoch", number(part.epoch), "number"],
      ]);
    });
  }
}
