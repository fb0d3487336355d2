/** The sources of a projection that wait for somebody to decide: why, where its handler failed, and the decision. */

import { act, answer } from "./actions.js";
import { command } from "./commands.js";
import { ago, keep, make, number, row, say } from "./page.js";

/** Parked sources that are listed before somebody asks for more. */
const FEW = 5;

export class ParkedSources {
  /** @param {HTMLElement} section Where they are listed. @param {string} projection Whose they are. */
  constructor(section, projection) {
    [this.section, this.projection] = [section, projection];
    this.find(".all").addEventListener("click", () => this.showAll());
  }

  find(selector) {
    return this.section.querySelector(selector);
  }

  show({ parked, parked_total: total }, at) {
    [this.parked, this.total, this.at] = [parked, total, at];
    const listed = this.all ? parked : parked.slice(0, FEW);
    this.section.hidden = !parked.length;
    keep(this.find("tbody"), listed, (one) => `${one.source_id} ${one.seq_nr}`, (one) => this.make(one), (line, one) => this.showOne(line, one));
    this.find(".all").hidden = this.all || parked.length <= FEW;
    say(this.find(".all"), `Show ${number(parked.length - FEW)} more`);
    this.find(".more").hidden = total <= listed.length || !this.find(".all").hidden;
    say(this.find(".more"), `and ${number(total - listed.length)} more: projections parked list ${this.projection}`);
  }

  showOne(line, one) {
    const tries = `${one.event_type}, ${one.attempts} ${one.attempts === 1 ? "attempt" : "attempts"}`;
    say(line.message, one.error);
    line.traceback.hidden = !one.traceback;
    say(line.traceback, one.traceback ?? "");
    row(line, [
      ["Source", one.source_id, "code"],
      ["Event", `${number(one.seq_nr)} · ${tries}`],
      ["Error", line.error, "error"],
      ["Parked", ago(one.parked_at, this.at)],
      ["Decision", one.decision === "waiting" ? line.buttons : one.decision === "drop" ? "to be dropped" : "to be retried"],
    ]);
  }

  showAll() {
    this.all = true;
    this.show({ parked: this.parked, parked_total: this.total }, this.at);
    this.find(`tr:nth-child(${FEW + 1}) button`)?.focus();
  }

  make(one) {
    const line = make("tr");
    const button = (text, kind, ask) => {
      const made = make("button", { type: "button", class: kind, "aria-label": `${text} event ${one.seq_nr} of ${one.source_id}` }, text);
      made.addEventListener("click", ask);
      return made;
    };
    line.message = make("span");
    line.traceback = make("pre", { tabindex: 0, "aria-label": `Traceback of event ${one.seq_nr} of ${one.source_id}` });
    line.where = make("details", {}, make("summary", {}, "Where, and commands"), line.traceback, ...this.commands(one));
    line.error = make("div", { class: "error" }, line.message, line.where);
    line.buttons = make("div", { class: "buttons" },
      button("Retry", "retry", (event) => act(event.currentTarget, "retry", this.bodyOf(one))),
      button("Drop", "drop danger", (event) => this.drop(event.currentTarget, one)));
    return line;
  }

  commands(one) {
    return ["show", "retry", "drop"].map((verb) => {
      const shown = command();
      shown.show(["projections", "parked", verb, this.projection, one.source_id]);
      return shown;
    });
  }

  bodyOf(one) {
    return { projection: this.projection, source_id: one.source_id, seq_nr: one.seq_nr };
  }

  async drop(button, one) {
    const text = `${this.projection} never handles event ${one.seq_nr} (${one.event_type}) of source ${one.source_id}, `
      + "and goes on with the events after it. The journal keeps the event.";
    const asked = { title: "Pass over this event?", text, keep: "Keep waiting", go: "Drop the event", value: "drop" };
    if ((await answer(asked)) === "drop") await act(button, "drop", this.bodyOf(one));
  }
}
