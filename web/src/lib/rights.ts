/** What the daemon lets whom do; each role may also do what those before it may. */

import type { Status } from "./status";

export type Role = "read" | "operate" | "admin";

export const ROLES: Role[] = ["read", "operate", "admin"];

interface Right {
  what: string;
  needs: Role;
  /** Only there, if not at both ends. */
  at?: Status["role"];
}

const RIGHTS: Right[] = [
  { what: "see everything but the config and invitations", needs: "read" },
  { what: "pause, resume and limit links, and lose one in a drill", needs: "operate", at: "edge" },
  { what: "measure links and the tunnel", needs: "operate", at: "edge" },
  { what: "end the tunnels of a site, by the API", needs: "operate", at: "hub" },
  { what: "invite sites, and withdraw invitations", needs: "admin", at: "hub" },
  { what: "see the config, check another, try it and keep it", needs: "admin" },
];

/** What there is to do at one end. */
export function rightsAt(end: Status["role"]): Right[] {
  return RIGHTS.filter((it) => (it.at ?? end) === end);
}

/** Whether somebody may do what needs a role; whose role is not known may not. */
export function mayAct(has: Role | undefined, needs: Role): boolean {
  return has !== undefined && ROLES.indexOf(has) >= ROLES.indexOf(needs);
}

/** As it stands in the head of the page. */
export const MAY: Record<Role, string> = {
  read: "you may look",
  operate: "you may operate",
  admin: "you may do everything",
};
