/** A page that nobody looks at is not drawn, and goes on after this. */
const UNSEEN_MS = 1_000;

/** Once what is in the document now has been drawn. */
export function drawn(): Promise<void> {
  return new Promise((done) => {
    setTimeout(done, UNSEEN_MS);
    // The first is before that frame, and the second before the one after it.
    requestAnimationFrame(() => requestAnimationFrame(() => done()));
  });
}
