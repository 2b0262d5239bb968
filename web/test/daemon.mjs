// A stand-in for the daemon: serves the built page and a status that moves, as the API does.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname } from "node:path";

const DIST = new URL("../dist/", import.meta.url);
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};
// As the daemon sends it.
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** A file of the page, with a status in it and the role of who asks if there are some. */
export async function sendFile(pathname, response, status, role) {
  const name = pathname === "/" ? "index.html" : pathname.slice(1);
  try {
    let body = await readFile(new URL(name, DIST));
    if (status) {
      const data = JSON.stringify(status).replaceAll("<", "\\u003c");
      body = `${body}`.replace("</head>", () => `<script type="application/json" id="status" data-role="${role}">${data}</script></head>`);
    }
    response.setHeader("content-type", TYPES[extname(name)] ?? "application/octet-stream");
    response.setHeader("content-security-policy", POLICY);
    response.end(body);
  } catch {
    response.writeHead(404).end();
  }
}

/** A tunnel without its paths, but for which links carry what it sends. */
function withoutPaths(tunnel) {
  const used = tunnel.paths.filter((path) => path.share_ratio > 0);
  return { ...tunnel, paths: [], shares: used.map(({ link, share_ratio }) => ({ link, share_ratio })) };
}

export class Daemon {
  /**
   * `status` makes the document for a number of seconds since the start, and `kept` the series that
   * the history has then of the last so many seconds, in steps of one kind.
   */
  constructor(status, { token, role = "read", answers = {}, speaks = true, tells = true, refuses, kept, journal = [] } = {}) {
    this.status = status;
    this.kept = kept ?? (() => []);
    /** Events, the oldest first. */
    this.journal = [...journal];
    /** The queries to history and journal, in their order. */
    this.queries = [];
    this.token = token;
    this.role = role;
    /** What is answered to requests, like `GET /v1/speedtest`, made of what they bring. */
    this.answers = answers;
    /** Whether its stream says anything. */
    this.speaks = speaks;
    /** Whether the page comes with the status, as for whoever needs no token. */
    this.tells = tells && !token;
    /** A problem document with which it refuses streams, and `after` how many seconds it will not. */
    this.refuses = refuses;
    this.refused = 0;
    this.seconds = 0;
    this.commands = [];
    /** What was asked for of each stream. */
    this.asked = [];
    /** Those that listen, with whether they want the paths of tunnels. */
    this.streams = new Map();
  }

  async start(port = 0) {
    this.server = createServer((request, response) => this.#answer(request, response));
    await new Promise((done) => this.server.listen(port, "127.0.0.1", done));
    this.port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.port}/`;
    return this;
  }

  /** One more second, told to all who listen. */
  tick(count = 1) {
    for (let i = 0; i < count; i += 1) {
      this.seconds += 1;
      for (const stream of this.streams.keys()) this.#tell(stream);
    }
  }

  /** Something happens, and is told to all who listen. */
  happen(event) {
    this.journal.push(event);
    for (const stream of this.streams.keys()) stream.write(`event: event\nid: ${event.id}\ndata: ${JSON.stringify(event)}\n\n`);
  }

  /** What is no whole event, told to all who listen. */
  mumble(bytes) {
    for (const stream of this.streams.keys()) stream.write(bytes);
  }

  async stop() {
    this.server.closeAllConnections();
    this.streams.clear();
    await new Promise((done) => this.server.close(done));
  }

  #tell(stream) {
    if (!this.speaks) return;
    const status = this.#scoped(this.streams.get(stream));
    stream.write(`event: status\ndata: ${JSON.stringify(status)}\n\n`);
  }

  #scoped(paths) {
    const status = this.status(this.seconds);
    const { tunnels } = status;
    if (paths === "false" || (paths === "own" && status.role === "hub")) status.tunnels = tunnels.map(withoutPaths);
    return status;
  }

  async #answer(request, response) {
    const { pathname } = new URL(request.url, "http://localhost");
    if (pathname.startsWith("/v1")) return this.#api(pathname, request, response);
    await sendFile(pathname, response, pathname === "/" && this.tells && this.#scoped("own"), this.role);
  }

  async #api(path, request, response) {
    const allowed = !this.token || request.headers.authorization === `Bearer ${this.token}`;
    const problem = (status, detail, { code, after } = {}) => {
      const wait = after === undefined ? {} : { "retry-after": after };
      response.writeHead(status, { "content-type": "application/problem+json", ...wait });
      response.end(JSON.stringify({ status, detail, code }));
    };
    if (!allowed) return problem(401, "a token is needed");
    if (path === "/v1") {
      response.end(JSON.stringify({ schema: "sennit.api/1", version: "test", role: this.role }));
    } else if (path === "/v1/live" && this.refuses) {
      this.refused += 1;
      problem(this.refuses.status, this.refuses.detail, this.refuses);
    } else if (path === "/v1/live") {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const asked = new URL(request.url, "http://localhost").searchParams;
      this.streams.set(response, asked.get("paths"));
      this.asked.push(asked);
      request.on("close", () => this.streams.delete(response));
      this.#tell(response);
    } else if (path === "/v1/command") {
      let body = "";
      for await (const part of request) body += part;
      this.commands.push(JSON.parse(body));
      response.setHeader("content-type", "application/json");
      response.end("{}");
    } else if (this.answers[`${request.method} ${path}`]) {
      let body = "";
      for await (const part of request) body += part;
      const { status = 200, document } = await this.answers[`${request.method} ${path}`](body && JSON.parse(body));
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(document));
    } else if (path === "/v1/history" || path === "/v1/events") {
      const { search, searchParams } = new URL(request.url, "http://localhost");
      this.queries.push(`${path.slice("/v1/".length)}${search}`);
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify(path === "/v1/history" ? this.#past(searchParams) : this.#events(searchParams)));
    } else {
      problem(404, "there is no such resource");
    }
  }

  #past(asked) {
    const step = asked.get("step") ?? "second";
    const series = this.kept(this.seconds, step, Number(asked.get("since") ?? Infinity));
    const wanted = asked.get("series") ?? "";
    return {
      schema: "sennit.history/1",
      step_seconds: { second: 1, minute: 60, hour: 3600 }[step],
      series: series.filter((it) => (wanted.endsWith("/") ? it.name.startsWith(wanted) : it.name === wanted)),
    };
  }

  #events(asked) {
    const number = (name, usual) => Number(asked.get(name) ?? usual);
    const since = Date.parse(this.status(this.seconds).time) - 1000 * number("since", Infinity);
    const wanted = this.journal.filter((it) => it.id > number("after", 0) && Date.parse(it.time) >= since);
    return { schema: "sennit.events/1", events: wanted.slice(-number("limit", 5000)) };
  }
}

