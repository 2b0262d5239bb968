// A hub and an edge as they are: two network namespaces, two links between them, and `sennit` in both.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sendFile } from "./daemon.mjs";

const TARGET = process.env.CARGO_TARGET_DIR ?? new URL("../../target", import.meta.url).pathname;

/** The newest program that was built here. */
function program() {
  if (process.env.SENNIT) return process.env.SENNIT;
  const built = ["debug", "release"].map((profile) => join(TARGET, profile, "sennit")).filter(existsSync);
  return built.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)[0];
}

/** Why there can be no daemons, if there can be none. */
export function lacking() {
  if (process.getuid() !== 0) return "network namespaces need root";
  if (!program()) return "there is no target/debug/sennit: cargo build";
  try {
    execFileSync("ip", ["netns", "list"], { stdio: "ignore" });
    return undefined;
  } catch {
    return "there is no ip";
  }
}

export class Pair {
  constructor() {
    this.hosts = ["hub", "edge"].map((role) => `snpage${process.pid}-${role}`);
    this.dir = mkdtempSync(join(tmpdir(), "sennit-page-"));
    this.running = [];
    this.doors = [];
  }

  async start() {
    const [hub, edge] = this.hosts;
    for (const host of this.hosts) this.#ip(`netns add ${host}`);
    for (const host of this.hosts) this.#ip(`-n ${host} link set lo up`);
    for (const [name, net] of [["dsl", 1], ["lte", 2]]) {
      this.#ip(`-n ${edge} link add ${name} type veth peer name ${name} netns ${hub}`);
      for (const [host, number] of [[hub, 1], [edge, 2]]) {
        this.#ip(`-n ${host} addr add 10.91.${net}.${number}/24 dev ${name}`);
        this.#ip(`-n ${host} link set ${name} up`);
      }
      this.#ip(`-n ${edge} route add default via 10.91.${net}.1 dev ${name} metric ${net}`);
    }
    this.#sennit("hub", "init", "--state", this.#at("hub"));
    this.#config("hub", `listen = ["10.91.1.1:443"]\npool = ["10.92.0.0/24"]\n`);
    const token = this.#sennit("invite", "van-07", "--hub", "10.91.1.1:443", "--state", this.#at("hub")).trim();
    this.#sennit("join", token, "--offline", "--state", this.#at("edge"), "--link", "dsl", "--link", "lte");
    const links = ["dsl", "lte"].map((name) => `[[link]]\nname = "${name}"\ninterface = "${name}"\n`);
    this.#config("edge", `hub = ["10.91.1.1:443"]\n${links.join("")}`);
    this.#daemon("hub", hub);
    this.#daemon("edge", edge);
    this.#sennit("wait", "--for", "up", "--timeout", "10", "--control", this.#at("edge.sock"));
    for (const role of ["hub", "edge"]) this[role] = await this.#door(this.#at(`${role}.sock`));
    return this;
  }

  async stop() {
    for (const child of this.running) child.kill("SIGKILL");
    for (const door of this.doors) {
      door.closeAllConnections();
      door.close();
    }
    for (const host of this.hosts) {
      try {
        // What runs there is not the child itself, but what it has become.
        this.#ip(`netns del ${host}`);
      } catch {
        // It was never made.
      }
    }
    rmSync(this.dir, { recursive: true, force: true });
  }

  #at(name) {
    return join(this.dir, name);
  }

  #ip(line) {
    execFileSync("ip", line.split(" "), { stdio: ["ignore", "ignore", "pipe"] });
  }

  #sennit(...words) {
    return execFileSync(program(), words, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  }

  #config(role, text) {
    mkdirSync(this.#at(role), { recursive: true });
    const paths = `state = "${this.#at(role)}"\ncontrol = "${this.#at(`${role}.sock`)}"\n`;
    writeFileSync(this.#at(`${role}-test.toml`), `[${role}]\n${paths}${text}`);
  }

  #daemon(role, host) {
    const words = ["netns", "exec", host, program(), role, "--config", this.#at(`${role}-test.toml`)];
    this.running.push(spawn("ip", words, { stdio: "ignore" }));
  }

  /** An address for the browser: the page as it was built last, and behind `/v1` the control socket. */
  async #door(socketPath) {
    const server = createServer((asked, answer) => {
      if (!asked.url.startsWith("/v1")) return void sendFile(asked.url, answer);
      const { method, url: path, headers } = asked;
      const daemon = request({ socketPath, method, path, headers }, (said) => {
        answer.writeHead(said.statusCode, said.headers);
        said.pipe(answer);
      });
      daemon.on("error", () => answer.destroy());
      answer.on("close", () => daemon.destroy());
      asked.pipe(daemon);
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    this.doors.push(server);
    return `http://127.0.0.1:${server.address().port}/`;
  }
}
