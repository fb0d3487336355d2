/** Endpoints of webhooks: their state, and what could not be delivered to them. */

import { $, act, answer } from "./actions.js";
import { ago, duration, keep, make, mark, number, row, say } from "./page.js";

/** What the button of an endpoint does, by the state that is shown. */
const CHANGES = { active: ["Pause", "pause-endpoint"], paused: ["Resume", "resume-endpoint"], disabled: ["Enable", "enable-endpoint"] };

const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });
/** Never 100 % while one has failed, and never 0 % while one has not. */
const share = (value) => percent.format(value > 0 && value < 1 ? Math.min(Math.max(value, 0.001), 0.999) : value);
const letters = (count) => (count === 1 ? "1 dead letter" : `${number(count)} dead letters`);

export class Webhooks {
  show({ webhooks, endpoints, dead_deliveries: dead, at }) {
    this.at = at;
    $("endpoints").hidden = !endpoints.length;
    $("no-endpoints").hidden = endpoints.length > 0;
    this.hosts = new Map(endpoints.map((found) => [found.id, found]));
    keep($("endpoints-table").tBodies[0], endpoints, (found) => found.id, (found) => this.makeEndpoint(found), (line, found) => this.showEndpoint(line, found));
    const total = webhooks ? webhooks.active + webhooks.paused + webhooks.disabled : 0;
    $("more-endpoints").hidden = total <= endpoints.length;
    say($("more-endpoints"), `and ${number(total - endpoints.length)} more, none in greater trouble: projections webhooks stats`);
    this.showDead(dead, webhooks?.dead ?? 0);
  }

  makeEndpoint({ id }) {
    const line = make("tr");
    line.name = make("div", { class: "two" }, make("span"), make("span", { class: "quiet code" }, id));
    line.toggle = make("button", { type: "button", class: "toggle" });
    line.retry = make("button", { type: "button", class: "retry", "aria-label": `Retry dead letters of ${id}` }, "Retry dead");
    line.toggle.addEventListener("click", () => act(line.toggle, CHANGES[line.found.state][1], { endpoint: id }));
    line.retry.addEventListener("click", () => this.retryAll(line));
    line.buttons = make("div", { class: "buttons" }, line.toggle, line.retry);
    return line;
  }

  showEndpoint(line, found) {
    line.found = found;
    const [word] = CHANGES[found.state];
    const [state, kind] = this.stateOf(found);
    say(line.name.firstElementChild, found.verified ? `${found.host} (verified)` : found.host);
    say(line.toggle, word);
    mark(line.toggle, "aria-label", `${word} ${found.id}`);
    line.retry.hidden = !found.dead;
    this.forbid(line.retry, found);
    row(line, [
      ["Endpoint", line.name, "name"],
      ["Tenant", found.tenant, "name"],
      ["State", state, `state-${kind}`],
      ["Success", found.success === null ? "–" : `${share(found.success)} of ${number(found.attempts)}`, "number"],
      ["Median", found.median === null ? "–" : duration(found.median), "number"],
      ["99 %", found.slowest_percent === null ? "–" : duration(found.slowest_percent), "number"],
      ["In flight", number(found.in_flight), "number"],
      ["Pending", number(found.pending), "number"],
      ["Waiting", number(found.waiting), "number"],
      ["Dead", number(found.dead), found.dead ? "number bad" : "number"],
      ["Expired", number(found.expired), "number"],
      ["Lag", duration(found.lag), "number"],
      ["Decision", line.buttons],
    ]);
  }

  /** In words, and the kind that it is shown as: what somebody has decided goes before what it does. */
  stateOf({ state, reason, failures, failing_since: since, blocked_until: until }) {
    if (state !== "active") return [reason ? `${state}: ${reason}` : state, state];
    const failing = failures ? `failing for ${duration(Math.max(this.at - since, 0))}, ${failures === 1 ? "1 attempt" : `${number(failures)} attempts`}` : "";
    const held = until > this.at ? `held for ${duration(until - this.at)}` : "";
    if (failing || held) return [[held, failing].filter(Boolean).join(", "), failures ? "failing" : "held"];
    return [state, state];
  }

  /** What a disabled endpoint gets is refused: say so before somebody asks. */
  forbid(button, { state }) {
    mark(button, "title", state === "disabled" ? "Enable the endpoint first" : null);
    if (button.dataset.off === undefined && state !== "disabled") return;
    button.disabled = state === "disabled";
    mark(button, "data-off", state === "disabled" ? "" : null);
  }

  async retryAll({ retry, found }) {
    const text = `${letters(found.dead)} of ${found.host} (${found.tenant}) ${found.dead === 1 ? "is" : "are"} sent again, with the attempts that their schedule has left.`;
    const asked = { title: "Send them again?", text, keep: "Leave them", go: `Send ${number(found.dead)} again`, value: "retry" };
    if ((await answer(asked)) === "retry") await act(retry, "retry-endpoint", { endpoint: found.id });
  }

  showDead(dead, total) {
    $("dead-deliveries").hidden = !dead.length;
    keep($("dead-deliveries-table").tBodies[0], dead, (one) => one.id, (one) => this.makeDead(one), (line, one) => {
      const endpoint = this.hosts.get(one.endpoint);
      this.forbid(line.buttons.firstElementChild, endpoint);
      row(line, [
        ["Endpoint", `${endpoint.host} · ${endpoint.tenant}`, "name"],
        ["Event", one.event, "code"],
        ["Topic", one.topic, "name"],
        ["Code", one.code ?? "–", "code"],
        ["Attempts", number(one.attempts), "number"],
        ["Died", ago(one.died_at, this.at)],
        ["Decision", line.buttons],
      ]);
    });
    $("more-dead-deliveries").hidden = total <= dead.length;
    say($("more-dead-deliveries"), `and ${number(total - dead.length)} more: projections webhooks dead list`);
  }

  makeDead({ endpoint, event, topic }) {
    const line = make("tr");
    const body = { endpoint, event_id: event };
    const retry = make("button", { type: "button", class: "retry", "aria-label": `Retry event ${event} of ${endpoint}` }, "Retry");
    retry.addEventListener("click", () => act(retry, "retry-delivery", body));
    const drop = make("button", { type: "button", class: "drop danger", "aria-label": `Drop event ${event} of ${endpoint}` }, "Drop");
    drop.addEventListener("click", async () => {
      const text = `Event ${event} (${topic}) is never sent to this endpoint; what waits for it in an order goes on.`;
      const asked = { title: "Drop this delivery?", text, keep: "Keep it", go: "Drop the delivery", value: "drop" };
      if ((await answer(asked)) === "drop") await act(drop, "drop-delivery", body);
    });
    line.buttons = make("div", { class: "buttons" }, retry, drop);
    return line;
  }
}
