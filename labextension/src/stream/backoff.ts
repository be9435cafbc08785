/** How long to wait before the next try: doubling, with jitter, so that many tabs do not come back at once. Pure. */

export interface BackoffOptions {
  firstMs: number;
  mostMs: number;
}

export const RECONNECT: BackoffOptions = { firstMs: 500, mostMs: 15_000 };
/** For what was refused: a socket while polls work, or a server that has no GPUlayer. */
export const SELDOM: BackoffOptions = { firstMs: 10_000, mostMs: 300_000 };

/** Milliseconds before try number `attempt` (0: the first again); `random` in [0, 1) spreads it over its upper half. */
export function backoffMs(attempt: number, options: BackoffOptions, random: number): number {
  const whole = Math.min(options.mostMs, options.firstMs * 2 ** Math.min(attempt, 30));
  return whole * (0.5 + random / 2);
}
