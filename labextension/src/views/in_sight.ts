/** Whether an element is on the screen, or nearly: what nobody sees is not drawn, and not asked for. */
import type { Subscription } from './source';

/** So far off the screen it is made ready. */
const MARGIN = '200px';

/** Tells when it comes into sight and leaves it; where a browser cannot tell, that it is in sight. */
export function watchSight(node: Element, on: (isInSight: boolean) => void): Subscription {
  if (typeof IntersectionObserver === 'undefined') {
    on(true);
    return { dispose: () => undefined };
  }
  const observer = new IntersectionObserver(entries => on(entries[entries.length - 1]?.isIntersecting ?? false), {
    rootMargin: MARGIN,
  });
  observer.observe(node);
  return { dispose: () => observer.disconnect() };
}
