// axe with all its rules of WCAG 2.1 A and AA.
import AxeBuilder from '@axe-core/playwright';
import type { Page } from '@playwright/test';
import { expect } from './lab';

const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'];

export async function expectNoViolations(page: Page, selector: string): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).setLegacyMode().include(selector).withTags(TAGS).analyze();
  expect(
    violations.map(
      ({ id, nodes }) => `${id}: ${nodes.map(node => `${node.html} ${node.failureSummary ?? ''}`).join('\n')}`,
    ),
  ).toEqual([]);
}
