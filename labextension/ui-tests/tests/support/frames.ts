// How long the browser's frames take while something is done in a page.
import type { Page } from '@playwright/test';

export interface Frames {
  count: number;
  longestMs: number;
  over50: number;
  /** Of the browser's own count: tasks over 50 ms. */
  longTasks: number;
}

interface Measuring {
  stop(): Frames;
}

export async function measured(page: Page, work: () => Promise<void>): Promise<Frames> {
  const measuring = await page.evaluateHandle((): Measuring => {
    const times: number[] = [];
    let before = performance.now();
    let isOn = true;
    let longTasks = 0;
    const observer = new PerformanceObserver(list => (longTasks += list.getEntries().length));
    observer.observe({ entryTypes: ['longtask'] });
    const frame = (): void => {
      const time = performance.now();
      times.push(time - before);
      before = time;
      if (isOn) {
        requestAnimationFrame(frame);
      }
    };
    requestAnimationFrame(frame);
    return {
      stop: () => {
        isOn = false;
        longTasks += observer.takeRecords().length;
        observer.disconnect();
        const longestMs = times.reduce((most, time) => Math.max(most, time), 0);
        return { count: times.length, longestMs, over50: times.filter(time => time > 50).length, longTasks };
      },
    };
  });
  await work();
  return measuring.evaluate(one => one.stop());
}
