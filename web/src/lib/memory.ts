/** What the browser keeps for the page; if it may keep nothing, the page does until it is left. */

class Memory {
  #own = new Map<string, string>();

  constructor(readonly storage: () => Storage) {}

  read(key: string): string | null {
    return this.#try((it) => it.getItem(key)) ?? this.#own.get(key) ?? null;
  }

  write(key: string, value: string) {
    this.#own.set(key, value);
    this.#try((it) => it.setItem(key, value));
  }

  forget(key: string) {
    this.#own.delete(key);
    this.#try((it) => it.removeItem(key));
  }

  /** Who forbids cookies has a browser that throws here. */
  #try<T>(use: (storage: Storage) => T): T | undefined {
    try {
      return use(this.storage());
    } catch {
      return undefined;
    }
  }
}

/** Until the tab is closed. */
export const session = new Memory(() => sessionStorage);
/** From one visit to the next. */
export const lasting = new Memory(() => localStorage);
