// A JupyterLab in which some extensions are not installed, as far as its page can tell.
import type { Page } from '@playwright/test';

interface PageConfig {
  federated_extensions: { name: string }[];
}

export async function withoutExtensions(page: Page, names: readonly string[]): Promise<void> {
  await page.route(/\/lab\/workspaces\/[^?]*\/tree\/[^?]*(\?|$)/, async route => {
    const answer = await route.fetch();
    const body = await answer.text();
    const config = /(<script id="jupyter-config-data"[^>]*>)([\s\S]*?)(<\/script>)/;
    await route.fulfill({
      response: answer,
      body: body.replace(config, (_whole, before: string, data: string, after: string) => {
        const page = JSON.parse(data) as PageConfig;
        page.federated_extensions = page.federated_extensions.filter(({ name }) => !names.includes(name));
        return before + JSON.stringify(page).replaceAll('<', '\\u003c') + after;
      }),
    });
  });
}
