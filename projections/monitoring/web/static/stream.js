/** What the monitor sends: one connection of this browser, for all of its tabs where it can share one. */

/** Milliseconds after which an answer that is not a stream, such as a proxy's 502, is followed by another attempt. */
const AGAIN = 2000;

/** A connection to the monitor, which comes again by itself. */
export class Stream {
  /** @param {string} url Of the events. @param {(said: {kind, data}) => void} tell Is called for each. */
  constructor(url, tell) {
    [this.url, this.tell] = [url, tell];
  }

  /** Connect, and be told the newest document. */
  open() {
    this.close();
    const source = new EventSource(this.url);
    this.source = source;
    source.addEventListener("message", ({ data }) => this.tell({ kind: "message", data }));
    source.addEventListener("error", () => {
      this.tell({ kind: "lost" });
      // A browser gives up after an answer that is not a stream.
      if (source.readyState === EventSource.CLOSED) this.timer = setTimeout(() => this.open(), AGAIN);
    });
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
  }
}

/** The stream that this tab shares with the other tabs of the monitor. */
class SharedStream {
  constructor(url, tell) {
    this.port = new SharedWorker(url, { type: "module" }).port;
    this.port.onmessage = ({ data }) => tell(data);
  }

  open() {
    this.port.postMessage("open");
  }

  close() {
    this.port.postMessage("close");
  }
}

/**
 * A browser opens six connections to a host for all of its tabs: a stream in each would leave none for buttons.
 *
 * @param {(path: string) => URL} beside Where a file of the monitor is. @param {(said: {kind, data}) => void} tell Is called for what comes.
 */
export function opened(beside, tell) {
  const stream = globalThis.SharedWorker
    ? new SharedStream(beside("static/shared_stream.js"), tell)
    : new Stream(beside("events"), tell);
  stream.open();
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", ({ persisted }) => persisted && stream.open());
  return stream;
}
