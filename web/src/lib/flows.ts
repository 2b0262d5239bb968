/** Whether the reader wants to see flows: at a hub they are many, and are asked for only then. */

import { session } from "./memory";
import type { Status } from "./status";

const KEY = "sennit-flows";

export function wantsFlows(role: Status["role"]): boolean {
  const kept = session.read(KEY);
  return kept === null ? role === "edge" : kept === "true";
}

export function keepFlows(wanted: boolean) {
  session.write(KEY, String(wanted));
}
