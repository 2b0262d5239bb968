/** Dark or light: as the system has it, until the reader chooses. */

import { lasting } from "./memory";

export type Choice = "auto" | "light" | "dark";

const KEY = "sennit-theme";
const CHOICES: Choice[] = ["auto", "light", "dark"];

class Theme {
  choice = $state<Choice>(stored());
  /** Counts changes of colour, for what is painted on a canvas. */
  changes = $state(0);

  constructor() {
    this.#apply();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => (this.changes += 1));
  }

  next() {
    this.choice = CHOICES[(CHOICES.indexOf(this.choice) + 1) % CHOICES.length]!;
    lasting.write(KEY, this.choice);
    this.#apply();
    this.changes += 1;
  }

  #apply() {
    document.documentElement.dataset.theme = this.choice;
  }
}

function stored(): Choice {
  const kept = lasting.read(KEY) as Choice;
  return CHOICES.includes(kept) ? kept : "auto";
}

export const theme = new Theme();
